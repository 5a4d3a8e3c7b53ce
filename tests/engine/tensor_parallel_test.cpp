// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism: a model whose layers are split trains as in one process.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/training_memory.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/overlap.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/linear_cross_entropy.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_linear.hpp"
#include "optim/rules/rules.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace tensor_parallel_test {

using namespace split_model_tests;

// A language model that computes its loss with its head, and never has class scores.
nn::ModulePtr with_fused_loss(const nn::ModulePtr& language_model, const std::string& base) {
  const auto model = std::make_shared<nn::CallbackModule>("LanguageModelLoss");
  model->add_child("model", language_model);
  model->set_forward([base](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor tokens = inputs[0].toTensor();
    const nn::ModulePtr& inner = self.children()[0].second;
    const at::Tensor hidden = inner->find(base)->call(tokens);
    const at::Tensor targets = at::constant_pad_nd(tokens.slice(1, 1), {0, 1}, -100);
    return nn::linear_cross_entropy(hidden, nn::find_tensor(*inner, "lm_head.weight"), targets, std::nullopt,
                                    std::nullopt, "mean", -100, 0, 0);
  });
  return model;
}
nn::ModulePtr fused_gpt2() { return with_fused_loss(gpt2(), "transformer"); }
nn::ModulePtr fused_llama() { return with_fused_loss(llama(), "model"); }

// Embedding, attention, norm, and a head of two layers.
nn::ModulePtr mixed() {
  const auto model = std::make_shared<nn::CallbackModule>("Mixed");
  model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, 20));
  model->add_child("attention", std::make_shared<nn::SelfAttention>(20, 4, true, true, 0.0));
  model->add_child("norm", std::make_shared<nn::LayerNorm>(20, 1e-5));
  model->add_child("up", std::make_shared<nn::Linear>(20, 17, true));
  model->add_child("act", std::make_shared<nn::Activation>("gelu"));
  model->add_child("down", std::make_shared<nn::Linear>(17, 20, true));
  model->add_child("hidden", std::make_shared<nn::Linear>(20, 9, false));
  model->add_child("again", std::make_shared<nn::Linear>(9, 11, true));
  model->add_child("head", std::make_shared<nn::Linear>(11, kVocabulary, true));
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& [name, child] : self.children()) x = child->call(x);
    return x;
  });
  return with_known_weights(model);
}
constexpr const char* kMixedPlan =
    "words embedding_colwise; attention.in_proj packed_colwise(20,20,20); attention.out_proj rowwise\n"
    "up colwise; down rowwise; hidden colwise_rep; again rowwise_split_input; head colwise_gather_output; norm "
    "replicate";

constexpr const char* kMixedSequencePlan =
    "words embedding_rowwise; attention.in_proj packed_colwise(3); attention.out_proj rowwise; norm sequence_parallel\n"
    "up colwise; down rowwise; hidden colwise; again rowwise; head colwise_gather_output";

// A relative of Llama, with a window that is shorter than the sequences.
nn::ModulePtr relative(const std::string& type, const std::string& more = "") {
  std::string config = split_model_tests::llama_config(R"(, "sliding_window": 2, "query_pre_attn_scalar": 4)" + more);
  return split_model_tests::from_config(config.replace(config.find("llama"), 5, type));
}

// A model with a dropout of 0, called as one that generates: each token's scores are of the vocabulary.
nn::ModulePtr encoder(const std::string& type, const std::string& name) {
  return split_model_tests::from_config(
      R"({"model_type": ")" + type + R"(", "architectures": [")" + name +
      R"("], "vocab_size": 13, "hidden_size": 24, "intermediate_size": 31, "num_hidden_layers": 2, "num_attention_heads": 6,
          "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "dim": 24, "hidden_dim": 31, "n_layers": 2,
          "n_heads": 6, "dropout": 0, "attention_dropout": 0, "pad_token_id": 1})");
}

const std::vector<Case> kCases = {
    {"GPT-2", gpt2, "auto"},
    {"Llama", [] { return llama(); }, "auto", kFloatTolerance},
    {"mixed", mixed, kMixedPlan},
    {"GPT-2, sequences", gpt2, "auto", 1e-9, true},
    {"mixed, sequences", mixed, kMixedSequencePlan, 1e-9, true},
    {"GPT-2, loss", gpt2, "auto", 1e-9, false, true},
    {"Llama, loss and sequences", [] { return llama(); }, "auto", kFloatTolerance, true, true},
    {"GPT-2, fused loss and sequences", fused_gpt2, "auto", 1e-9, true, true, true},
    {"Gemma 2", [] { return relative("gemma2", R"(, "head_dim": 4)"); }, "auto", kFloatTolerance},
};

const std::vector<Case> kOtherCases = {
    {"tied Llama", [] { return llama(R"(, "tie_word_embeddings": true)"); }, "auto", kFloatTolerance},
    {"Llama, sequences", [] { return llama(); }, "auto", kFloatTolerance, true},
    {"tied Llama, loss", [] { return llama(R"(, "tie_word_embeddings": true)"); }, "auto", kFloatTolerance, false,
     true},
    {"mixed, loss", mixed, kMixedPlan, 1e-9, false, true},
    {"Mistral", [] { return relative("mistral"); }, "auto", kFloatTolerance},
    {"Qwen 2", [] { return relative("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 1)"); }, "auto",
     kFloatTolerance},
    {"BERT", [] { return encoder("bert", "BertForMaskedLM"); }, "auto", kFloatTolerance},
    {"RoBERTa", [] { return encoder("roberta", "RobertaForMaskedLM"); }, "auto", kFloatTolerance},
    {"DistilBERT", [] { return encoder("distilbert", "DistilBertForMaskedLM"); }, "auto", kFloatTolerance},
    {"Llama, fused loss", fused_llama, "auto", kFloatTolerance, false, false, true},
};

constexpr MeshSizes kMeshes[] = {{1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}};

void expect_trains_on_meshes(const Case& test) {
  const int steps = test.tolerance == 1e-9 && !test.returns_loss ? 50 : 20;
  const Trained expected = train_alone(test, steps);
  for (const MeshSizes& sizes : kMeshes) expect_trains_as(expected, test, sizes);
}

TEST(SplitTraining, TrainsAsOneProcess) {
  for (const Case& test : kCases) expect_trains_on_meshes(test);
}

TEST(SplitTraining, OtherModelsTrainAsOneProcess) {
  for (const Case& test : kOtherCases) expect_trains_on_meshes(test);
}

// A mesh that could shard the model, and settings that do not.
TEST(SplitTraining, TrainsAsOneProcessWithoutShards) {
  constexpr int kSteps = 3;
  PrepareModelSettings settings;
  settings.fsdp.sharding_strategy = ShardingStrategy::kNoShard;
  for (const Case& test : {kCases[3], kCases[4]}) {
    SCOPED_TRACE(test.name);
    const Trained expected = train_alone(test, kSteps);
    on_mesh({1, 2, 2}, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, test, settings);
      for (int step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(step).second, expected.steps[static_cast<size_t>(step)].second, test.tolerance);
      expect_close(training.weights(), expected.weights, test.tolerance);
    });
  }
}

TEST(SplitTraining, CheckpointsLoadOnOtherMeshes) {
  constexpr int kSteps = 2;
  for (const Case& test : {kCases[0], kCases[1]}) {
    SCOPED_TRACE(test.name);
    const Trained expected = train_alone(test, kSteps);
    for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict}) {
      PrepareModelSettings settings;
      settings.fsdp.state_dict_type = type;
      const checkpoint::tests::Folder folder;
      on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, test, settings);
        for (int step = 0; step < kSteps; step++) training.step(step);
        accelerator->checkpoints().save_state(folder / "s");
      });
      for (const MeshSizes& sizes : {MeshSizes{1, 1, 1}, MeshSizes{1, 1, 3}, MeshSizes{1, 2, 2}})
        on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
          Training training(accelerator, test, settings);
          accelerator->checkpoints().load_state(folder / "s");
          expect_close(training.weights(), expected.weights, test.tolerance);
          training.step(kSteps);
          expect_close(training.weights(), expected.more, test.tolerance);
        });
    }
  }
}

// A rank stores its part of each split layer.
TEST(SplitTraining, ARankStoresItsPart) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCases[0]);
    std::map<std::string, std::vector<int64_t>> sizes;
    for (const auto& [name, parameter] : nn::named_parameters(*training.inner())) sizes[name] = parameter.sizes().vec();
    const int64_t rank = accelerator->state().process_index();
    EXPECT_EQ(sizes["transformer.wte.weight"], (std::vector<int64_t>{rank == 0 ? 7 : 6, 24}));
    EXPECT_EQ(sizes["transformer.wpe.weight"], (std::vector<int64_t>{8, 24}));
    EXPECT_EQ(sizes["transformer.h.1.attn.c_attn.weight"], (std::vector<int64_t>{24, 36}));
    EXPECT_EQ(sizes["transformer.h.1.attn.c_attn.bias"], (std::vector<int64_t>{36}));
    EXPECT_EQ(sizes["transformer.h.1.attn.c_proj.weight"], (std::vector<int64_t>{12, 24}));
    EXPECT_EQ(sizes["transformer.h.1.mlp.c_fc.weight"], (std::vector<int64_t>{24, 48}));
    EXPECT_EQ(sizes["transformer.h.1.mlp.c_proj.bias"], (std::vector<int64_t>{24}));
  });
}

// Class scores stay split for a loss, and are whole where nothing is differentiated.
TEST(SplitTraining, ScoresOfAHeadAreWholeInAnEvaluation) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Case test = kCases[0];
    test.loss_parallel = true;
    Training training(accelerator, test);
    const at::Tensor tokens = at::arange(kLength, at::kLong).view({1, kLength});
    EXPECT_EQ(training.model()->call(tokens).size(2), accelerator->state().process_index() == 0 ? 7 : 6);
    const at::NoGradGuard no_grad;
    EXPECT_EQ(training.model()->call(tokens).size(2), kVocabulary);
  });
}

TEST(SplitTraining, GradientsThatDifferAreFoundInTheFirstBackward) {
  // The activation between the layers has a weight, of which each rank sees the features of its own alone.
  const Case scaled{"",
                    [] {
                      const auto model = std::make_shared<nn::CallbackModule>("Scaled");
                      model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, 8));
                      model->add_child("up", std::make_shared<nn::Linear>(8, 12, true));
                      model->add_child("down", std::make_shared<nn::Linear>(12, kVocabulary, true));
                      model->add_parameter("scale", at::empty({1}), true);
                      model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
                        const auto layer = [&](size_t index) { return self.children()[index].second; };
                        const at::Tensor hidden = layer(1)->call(layer(0)->call(inputs[0].toTensor()));
                        return layer(2)->call(hidden * self.parameter(0));
                      });
                      return with_known_weights(model);
                    },
                    "up colwise; down rowwise"};
  on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    tests::expect_error(Status::kCollectiveMismatch, "that they store as a whole: scale;",
                        [&] { Training(accelerator, scaled).backward(0); });
    accelerator->free_memory();
    PrepareModelSettings unchecked;
    unchecked.tensor_parallel.verify_gradients = false;
    Training(accelerator, scaled, unchecked).backward(0);
  });
}

// The same with the rule that the parameter needs.
TEST(SplitTraining, ParametersMayHaveRulesOfTheirOwn) {
  const Case scaled{"",
                    [] {
                      const auto model = std::make_shared<nn::CallbackModule>("Scaled");
                      model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, 8));
                      model->add_child("up", std::make_shared<nn::Linear>(8, 12, true));
                      model->add_child("down", std::make_shared<nn::Linear>(12, kVocabulary, true));
                      model->add_parameter("scale", at::empty({1}), true);
                      model->add_parameter("shift", at::empty({12}), true);
                      model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
                        const auto layer = [&](size_t index) { return self.children()[index].second; };
                        const at::Tensor hidden = layer(1)->call(layer(0)->call(inputs[0].toTensor()));
                        return layer(2)->call(hidden * self.parameter(0) + self.parameter(1));
                      });
                      return with_known_weights(model);
                    },
                    "up colwise; down rowwise; scale replicated_with_grad_allreduce; shift colwise"};
  const Trained expected = train_alone({"", scaled.make, "auto"}, 5);
  on_mesh({1, 1, 3}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, scaled);
    for (int step = 0; step < 5; step++) EXPECT_NEAR(training.step(step).second, expected.steps[step].second, 1e-9);
    expect_close(training.weights(), expected.weights, 1e-9);
  });
}

// Two products of one input and one that reads both, with parameters of its own.
nn::ModulePtr with_products_of_its_own() {
  const auto layers = std::make_shared<nn::CallbackModule>("FeedForward");
  layers->add_parameter("up", at::empty({8, 13}), true);  // transposed
  layers->add_parameter("shift", at::empty({13}), true);
  layers->add_parameter("gate", at::empty({13, 8}), true);
  layers->add_parameter("down", at::empty({kVocabulary, 13}), true);
  layers->add_parameter("bias", at::empty({kVocabulary}), true);
  layers->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    const at::Tensor x = inputs[0].toTensor();
    const auto own = [&](size_t index) { return self.parameter(index); };
    const at::Tensor up = nn::split_linear(x, own(0), own(1), /*is_transposed=*/true, false, /*readers=*/2);
    const at::Tensor gate = nn::split_linear(x, own(2), std::nullopt, false, false, 2);
    return nn::split_linear(up.tanh() * gate, own(3), own(4), false, false, 1);
  });
  const auto model = std::make_shared<nn::CallbackModule>("Net");
  model->add_child("words", std::make_shared<nn::Embedding>(kVocabulary, 8));
  model->add_child("layers", layers);
  model->set_forward([](nn::Module& self, const nn::Inputs& inputs) -> c10::IValue {
    return self.children()[1].second->call(self.children()[0].second->call(inputs[0].toTensor()));
  });
  return with_known_weights(model);
}

TEST(SplitTraining, ProgramsMultiplyWithPartsOfTheirOwnParameters) {
  const Case test{"products of its own", with_products_of_its_own,
                  "layers.up rowwise; layers.shift colwise; layers.gate colwise; layers.down rowwise"};
  const Trained expected = train_alone({"", test.make, "none"}, 5);
  for (const Overlap overlap : {Overlap::kNo, Overlap::kYes})
    on_mesh({1, 1, 3}, [&](const AcceleratorPtr& accelerator) {
      PrepareModelSettings settings;
      settings.tensor_parallel.overlap = overlap;
      settings.tensor_parallel.overlap_chunks = 2;
      Training training(accelerator, test, settings);
      for (int step = 0; step < 5; step++) EXPECT_NEAR(training.step(step).second, expected.steps[step].second, 1e-9);
      expect_close(training.weights(), expected.weights, 1e-9);
    });
}

// The estimate is that of the rank with the largest parts, the first one.
TEST(SplitTraining, EstimatesAreWhatARankStores) {
  for (const int parts : {2, 3})
    on_mesh({1, 1, parts}, [&](const AcceleratorPtr& accelerator) {
      EstimateMemorySettings settings;
      settings.num_processes = settings.tensor_parallel_size = parts;
      const nn::ModulePtr whole = kCases[1].make();
      const auto expected = accelerator::estimate_memory(whole, nullptr, settings);
      Training training(accelerator, kCases[1]);
      int64_t bytes = 0;
      for (const at::Tensor& parameter : training.inner()->parameters())
        bytes += static_cast<int64_t>(parameter.nbytes());
      const auto found = accelerator::estimate_memory(training.model(), nullptr, settings);
      EXPECT_EQ(found.peak.total(), expected.peak.total());
      if (accelerator->state().process_index() != 0) return;
      EXPECT_EQ(found.peak.parameters, bytes);
      EXPECT_EQ(found.peak.gradients, bytes);
    });
}

TEST(SplitTraining, OptimizersOfWholeParametersAreRefused) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, kCases[0]);
    const at::Tensor weight = training.inner()->find("transformer.h.0.mlp.c_fc")->parameter(0);
    const auto refuse = [&](const std::string& name, optim::RulePtr rule) {
      const auto plain = optim::make_optimizer(std::move(rule));
      plain->add_group({weight}, std::nullopt, std::nullopt);
      tests::expect_error(Status::kUnsupported, "the optimizer " + name + " computes an update from a whole parameter",
                          [&] { accelerator->preparation().prepare_optimizer(plain); });
    };
    refuse("lamb", optim::lamb_rule());
    refuse("adafactor", optim::adafactor_rule());
    refuse("muon", optim::muon_rule());
    refuse("lomo", optim::lomo_rule());
    refuse("adalomo", optim::adalomo_rule());
  });
}

void expect_refused(Status status, const std::string& message, const Case& test) {
  SCOPED_TRACE(test.plan);
  on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    tests::expect_error(status, message, [&] { Training(accelerator, test); });
  });
}

TEST(SplitTraining, PlansThatDoNotFitAreRefused) {
  const auto refuse = [](const std::string& plan, const std::string& message,
                         Status status = Status::kInvalidArgument) {
    expect_refused(status, message, {"", mixed, plan});
  };
  refuse("up colwise; down rowwise; other.* colwise", "rule 'other.* colwise' of the plan matches no layer");
  refuse("norm colwise", "rule 'norm colwise' does not fit 'norm', of kind 'LayerNorm'");
  refuse("up colwise; down replicate", "no layer in '' takes it; expected a rowwise layer");
  refuse("down rowwise", "takes a split input for 'down', and no layer");
  refuse("attention.in_proj colwise; attention.out_proj rowwise", "which are those of no query, key or value");
  refuse("up diagonal", "has the style 'diagonal'; expected one of colwise, ");
  refuse("up", "rule 'up' of the plan has one part");
  refuse(" ; ", "the plan has no rule");
  refuse("attention.in_proj packed_colwise(7); attention.out_proj rowwise", "cuts the 60 features of");
  refuse("attention.in_proj packed_colwise(20,30); attention.out_proj rowwise", "packs 50 features");
  refuse("attention.in_proj packed_colwise; attention.out_proj rowwise", "has no number of packed tensors");
  refuse("up colwise(2); down rowwise", "has a number of packed tensors");
  refuse("up colwise[5]; down rowwise[5]", "has heads of 5 features, and 'up.weight' has 17; expected a multiple");
  refuse("up colwise[17]; down rowwise[17]", "'down rowwise[17]' splits 1 heads of 'down.weight' over 2 ranks");
  refuse("up colwise[; down rowwise", "rule 'up colwise[' of the plan has no closing bracket");
  refuse("up colwise[some]; down rowwise", "has 'some' in its brackets; expected the features of a head");
  refuse("words embedding_rowwise[2]", "has the features of a head; expected them with colwise and rowwise alone");
  refuse("up.weight colwise", "names a parameter of a layer that is split as a whole");
  refuse("norm.bias embedding_colwise", "does not fit 'norm.bias' of shape [20]; expected at least two dimensions");
  expect_refused(Status::kInvalidArgument, "are one parameter, and their rules cut it in different ways",
                 {"", gpt2, "transformer.wte embedding_rowwise"});
  expect_refused(Status::kInvalidArgument, "rule 'norm sequence_parallel' is for layers on split sequences",
                 {"", mixed, kMixedSequencePlan});
  expect_refused(Status::kInvalidArgument, "has no embedding and head where the split sequence begins",
                 {"", [] { return std::make_shared<nn::SelfAttention>(8, 2, true, true, 0.0); }, "auto", 0, true});
  expect_refused(Status::kInvalidArgument, "loss_parallel is 1, and the plan has no head",
                 {"", mixed, "up colwise; down rowwise", 0, false, true});
  expect_refused(Status::kUnsupported, "there is no plan that splits a model of kind 'Linear'",
                 {"", [] { return std::make_shared<nn::Linear>(4, 4, true); }, "auto"});
  expect_refused(Status::kInvalidArgument, "has 1 heads to split over 2 ranks",
                 {"", [] { return std::make_shared<nn::SelfAttention>(8, 1, true, true, 0.0); }, "auto"});
}

}  // namespace tensor_parallel_test
}  // namespace accel::parallel
