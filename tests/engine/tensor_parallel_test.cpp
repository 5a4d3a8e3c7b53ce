// Tensor parallelism: a model whose layers are split trains as in one process.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/callback_module.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/linear_cross_entropy.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"

namespace accel::parallel {
namespace tensor_parallel_test {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kVocabulary = 13, kRows = 4, kLength = 6;

struct Case {
  std::string name;
  std::function<nn::ModulePtr()> make;
  std::string plan;  // of the settings
  double tolerance = 1e-9;
  bool sequence_parallel = false;
  bool loss_parallel = false;
  bool returns_loss = false;
};

// Llama's norms compute in float32, as the reference's do, and Adam turns a rounding into a step.
constexpr double kFloatTolerance = 1e-5;

// Ranks that are threads share one random stream, so that weights are not drawn.
nn::ModulePtr with_known_weights(const nn::ModulePtr& model) {
  model->to(at::kDouble, std::nullopt);
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) {
    seed += 0.37;
    const bool is_scale = name.find("norm") != std::string::npos && parameter.dim() == 1;
    parameter.copy_(
        at::linspace(-3 * seed, 11 * seed, parameter.numel(), at::kDouble).sin().mul(0.3).view(parameter.sizes()));
    if (is_scale) parameter.add_(1);
  }
  return model;
}

nn::ModulePtr from_config(const std::string& config) { return with_known_weights(nn::module_from_config(config)); }

nn::ModulePtr gpt2() {
  return from_config(
      R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 13, "n_positions": 8,
      "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})");
}

nn::ModulePtr llama(const std::string& more = "", int64_t key_heads = 3) {
  return from_config(R"({"model_type": "llama", "hidden_size": 24, "intermediate_size": 31, "num_hidden_layers": 2,
      "num_attention_heads": 6, "vocab_size": 13, "attention_bias": true, "mlp_bias": true, "num_key_value_heads": )" +
                     std::to_string(key_heads) + more + "}");
}

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

const std::vector<Case> kCases = {
    {"GPT-2", gpt2, "auto"},
    {"Llama", [] { return llama(); }, "auto", kFloatTolerance},
    {"tied Llama", [] { return llama(R"(, "tie_word_embeddings": true)"); }, "auto", kFloatTolerance},
    {"mixed", mixed, kMixedPlan},
    {"GPT-2, sequences", gpt2, "auto", 1e-9, true},
    {"Llama, sequences", [] { return llama(); }, "auto", kFloatTolerance, true},
    {"mixed, sequences", mixed, kMixedSequencePlan, 1e-9, true},
    {"GPT-2, loss", gpt2, "auto", 1e-9, false, true},
    {"Llama, loss and sequences", [] { return llama(); }, "auto", kFloatTolerance, true, true},
    {"tied Llama, loss", [] { return llama(R"(, "tie_word_embeddings": true)"); }, "auto", kFloatTolerance, false,
     true},
    {"mixed, loss", mixed, kMixedPlan, 1e-9, false, true},
    {"GPT-2, fused loss and sequences", fused_gpt2, "auto", 1e-9, true, true, true},
    {"Llama, fused loss", fused_llama, "auto", kFloatTolerance, false, false, true},
};

class Training {
 public:
  Training(const AcceleratorPtr& accelerator, const Case& test, const PrepareModelSettings& settings = {})
      : accelerator_(accelerator), returns_loss_(test.returns_loss) {
    inner_ = test.make();
    PrepareModelSettings preparation = settings;
    preparation.tensor_parallel.plan = test.plan;
    preparation.tensor_parallel.sequence_parallel = test.sequence_parallel;
    preparation.tensor_parallel.loss_parallel = test.loss_parallel;
    preparation.fsdp.enabled = accelerator->state().groups().mesh()->size("shard") > 1;
    auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
    plain->add_group(inner_->parameters(), std::nullopt, std::nullopt);
    model_ = accelerator->preparation().prepare_model(inner_, preparation);
    optimizer_ = accelerator->preparation().prepare_optimizer(plain);
  }

  at::Tensor backward(int64_t number) {
    const auto data = accelerator_->state().groups().data_parallel();
    const int64_t share = kRows / data->size();
    const at::Tensor rows =
        at::arange(kRows * kLength).mul(7 + number).add(number * number).remainder(kVocabulary).view({kRows, kLength});
    const at::Tensor tokens = rows.narrow(0, data->rank() * share, share);
    const at::Tensor output = model_->call(tokens);
    const at::Tensor loss =
        returns_loss_ ? output
                      : at::cross_entropy_loss(output.slice(1, 0, -1).flatten(0, 1), tokens.slice(1, 1).flatten());
    accelerator_->backward().run(loss);
    return loss.detach();
  }

  // Returns the loss of this rank and the norm of the gradients.
  std::pair<double, double> step(int64_t number) {
    const double loss = backward(number).item<double>();
    const double norm = accelerator_->clipping().clip_gradients_by_norm(model_, 0.5, 2)->item<double>();
    optimizer_->step();
    optimizer_->zero_grad(true);
    return {loss, norm};
  }

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : accelerator_->files().whole_state_dict(model_, /*keep=*/true))
      weights[name] = tensor.clone();
    return weights;
  }

  const nn::ModulePtr& inner() const { return inner_; }
  const nn::ModulePtr& model() const { return model_; }

 private:
  AcceleratorPtr accelerator_;
  bool returns_loss_;
  nn::ModulePtr inner_, model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
};

struct Trained {
  std::vector<std::pair<double, double>> steps;
  std::map<std::string, at::Tensor> weights, more;  // after the steps, and after one step more
};

Trained train_alone(const Case& test, int steps) {
  Trained trained;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (int step = 0; step < steps; step++) trained.steps.push_back(training.step(step));
    trained.weights = training.weights();
    training.step(steps);
    trained.more = training.weights();
  });
  return trained;
}

void expect_close(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected,
                  double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::allclose(found.at(name), tensor, tolerance, tolerance))
        << name << " differs by " << (found.at(name) - tensor).abs().max().item<double>();
}

constexpr MeshSizes kMeshes[] = {{1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}};

TEST(TensorParallel, TrainsAsOneProcess) {
  constexpr int kSteps = 20;
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    const Trained expected = train_alone(test, kSteps);
    for (const MeshSizes& sizes : kMeshes) {
      SCOPED_TRACE(std::to_string(sizes.replicas) + std::to_string(sizes.shards) + std::to_string(sizes.parts));
      on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, test);
        for (int step = 0; step < kSteps; step++) {
          const auto [loss, norm] = training.step(step);
          if (sizes.replicas * sizes.shards == 1) {
            EXPECT_NEAR(loss, expected.steps[step].first, test.tolerance);
          }
          EXPECT_NEAR(norm, expected.steps[step].second, test.tolerance);
        }
        expect_close(training.weights(), expected.weights, test.tolerance);
      });
    }
  }
}

TEST(TensorParallel, CheckpointsLoadOnOtherMeshes) {
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
TEST(TensorParallel, ARankStoresItsPart) {
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
TEST(TensorParallel, ScoresOfAHeadAreWholeInAnEvaluation) {
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

TEST(TensorParallel, GradientsThatDifferAreFoundInTheFirstBackward) {
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
TEST(TensorParallel, ParametersMayHaveRulesOfTheirOwn) {
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

void expect_refused(Status status, const std::string& message, const Case& test) {
  SCOPED_TRACE(test.plan);
  on_mesh({1, 1, 2}, [&](const AcceleratorPtr& accelerator) {
    tests::expect_error(status, message, [&] { Training(accelerator, test); });
  });
}

TEST(TensorParallel, PlansThatDoNotFitAreRefused) {
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
  refuse("up.weight colwise", "names a parameter of a layer that is split as a whole");
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
                 {"", [] { return llama("", 1); }, "auto"});
}

}  // namespace tensor_parallel_test
}  // namespace accel::parallel
