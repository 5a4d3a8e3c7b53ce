// SPDX-License-Identifier: Apache-2.0
// Context parallelism: a model whose sequences are split trains as in one process, beside all other kinds of
// parallelism.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/sequence_keys.hpp"
#include "accelerator/sequence_splitting.hpp"
#include "accelerator/steps/micro_batch.hpp"
#include "checkpoint_fixture.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/choices/recompute.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "mesh_ranks.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/layers/linear.hpp"
#include "nn/module_walks.hpp"
#include "nn/recompute/activation_checkpointing.hpp"
#include "nn/torchscript_module.hpp"
#include "optim/rules/rules.hpp"
#include "parallel/context/context_scope.hpp"
#include "parallel/tensor/split_model.hpp"
#include "settings_fixture.hpp"
#include "tensor/autograd/loss.hpp"

namespace accel::parallel {
namespace context_parallel_test {

using tests::AcceleratorPtr;
using tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kVocabulary = 13, kRows = 4, kLength = 24;
constexpr int64_t kIgnored = 9;  // positions at the beginning of each row, so that ranks have other numbers of labels
constexpr double kTolerance = 1e-9;

// Ranks that are threads share one random stream, so that weights are not drawn.
nn::ModulePtr with_known_weights(const nn::ModulePtr& model) {
  model->to(at::kDouble, std::nullopt);
  const at::NoGradGuard no_grad;
  double seed = 1;
  for (const auto& [name, parameter] : nn::named_parameters(*model)) {
    seed += 0.37;
    parameter.copy_(
        at::linspace(-3 * seed, 11 * seed, parameter.numel(), at::kDouble).sin().mul(0.3).view(parameter.sizes()));
  }
  return model;
}

nn::ModulePtr gpt2() {
  return with_known_weights(nn::module_from_config(
      R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 13, "n_positions": 24,
      "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0})"));
}

// Attention by LibTorch's operator in a saved program, which knows nothing of ranks.
nn::ModulePtr scripted() {
  torch::jit::Module script("Scripted");
  for (const auto& [name, sizes] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"table", {kVocabulary, 8}}, {"mix", {8, 24}}, {"head", {8, kVocabulary}}})
    script.register_parameter(name, at::empty(sizes, at::kDouble).requires_grad_(), /*is_buffer=*/false);
  script.define(R"(
def forward(self, tokens):
  x = torch.embedding(self.table, tokens)
  heads = torch.matmul(x, self.mix).view(tokens.size(0), tokens.size(1), 3, 2, 4).permute(2, 0, 3, 1, 4)
  mixed = torch.scaled_dot_product_attention(heads[0], heads[1], heads[2], None, 0.0, True)
  return torch.matmul(x + mixed.transpose(1, 2).flatten(2), self.head)
)");
  const checkpoint::tests::Folder folder;
  script.save(folder / "scripted.pt");
  return with_known_weights(nn::load_torchscript(folder / "scripted.pt"));
}

struct Case {
  std::string name;
  MeshSizes mesh;
  ContextMethod method = ContextMethod::kAllGather;
  bool is_sharded = false;
  std::optional<Recompute> recompute = std::nullopt;
  int64_t micro_batches = 1;
  std::function<nn::ModulePtr()> make = gpt2;
};

class Training {
 public:
  Training(const AcceleratorPtr& accelerator, const Case& test,
           StateDictType state_dict_type = StateDictType::kFullStateDict)
      : accelerator_(accelerator), micro_batches_(test.micro_batches) {
    comm::Mesh& mesh = *accelerator->state().groups().mesh();
    split_.group = mesh.group("context");
    split_.method = test.method;
    if (test.method == ContextMethod::kUlysses) split_.order = SequenceOrder::kContiguous;
    const nn::ModulePtr inner = test.make();
    if (test.recompute) {
      ActivationCheckpointingSettings recompute;
      recompute.recompute = *test.recompute;
      recompute.class_names = std::string("GPT2Block");
      nn::checkpoint_activations(*inner, recompute);
    }
    auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.01}});
    plain->add_group(inner->parameters(), std::nullopt, std::nullopt);
    PrepareModelSettings settings;
    if (mesh.size("tensor") > 1) split_model(*inner, plan_of(*inner, false), mesh.group("tensor"), {});
    settings.split_by_program = mesh.size("context,tensor") > 1;
    settings.fsdp.enabled = test.is_sharded && accelerator->state().num_processes() > 1;
    settings.fsdp.state_dict_type = state_dict_type;
    auto accumulation = accelerator->state().gradient_state()->settings();
    accumulation.num_steps = micro_batches_;
    accelerator->state().gradient_state()->set_settings(accumulation);
    model_ = accelerator->preparation().prepare_model(inner, settings);
    optimizer_ = accelerator->preparation().prepare_optimizer(plain);
  }

  // Returns the mean loss of this rank's rows, and the norm of the gradients.
  std::pair<double, double> step(int64_t number) {
    double loss = 0, norm = 0;
    for (int64_t i = 0; i < micro_batches_; i++) {
      const accelerator::MicroBatch micro_batch(accelerator_, {model_});
      const at::Tensor own = loss_of(number, i);
      accelerator_->backward().run(own);
      loss += own.item<double>() / static_cast<double>(micro_batches_);
      if (const auto clipped = accelerator_->clipping().clip_gradients_by_norm(model_, 0.5, 2))
        norm = clipped->item<double>();
      optimizer_->step();
      optimizer_->zero_grad(true);
    }
    return {loss, norm};
  }

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : accelerator_->files().whole_state_dict(model_, /*keep=*/true))
      weights[name] = tensor.clone();
    return weights;
  }

 private:
  at::Tensor loss_of(int64_t number, int64_t micro_batch) const {
    const auto data = accelerator_->state().groups().data_parallel();
    const int64_t share = kRows / data->size() / micro_batches_;
    const at::Tensor rows =
        at::arange(kRows * kLength).mul(7 + number).add(number * number).remainder(kVocabulary).view({kRows, kLength});
    const at::Tensor tokens = rows.narrow(0, (data->rank() * micro_batches_ + micro_batch) * share, share);
    const at::Tensor labels = tokens.roll(-1, 1);
    labels.narrow(1, 0, kIgnored).fill_(-100);
    labels.narrow(1, kLength - 1, 1).fill_(-100);
    const ContextScope scope(split_, {{tokens, 1}, {labels, 1}});
    return tensor::cross_entropy(model_->call(tokens), labels);
  }

  AcceleratorPtr accelerator_;
  int64_t micro_batches_;
  ContextParallelism split_;
  nn::ModulePtr model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
};

struct Trained {
  std::vector<std::pair<double, double>> steps;
  std::map<std::string, at::Tensor> weights, more;  // after the steps, and after one step more
};

Trained train_alone(int steps, const std::function<nn::ModulePtr()>& make = gpt2) {
  Trained trained;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    Case alone{"", {1, 1, 1}};
    alone.make = make;
    Training training(accelerator, alone);
    for (int step = 0; step < steps; step++) trained.steps.push_back(training.step(step));
    trained.weights = training.weights();
    training.step(steps);
    trained.more = training.weights();
  });
  return trained;
}

void expect_close(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::allclose(found.at(name), tensor, kTolerance, kTolerance))
        << name << " differs by " << (found.at(name) - tensor).abs().max().item<double>();
}

// As many steps of AdamW in float64, with clipping.
void expect_trains_as(const Trained& expected, const Case& test) {
  SCOPED_TRACE(test.name);
  on_mesh(test.mesh, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (size_t step = 0; step < expected.steps.size(); step++) {
      const auto [loss, norm] = training.step(static_cast<int64_t>(step));
      if (test.mesh.replicas * test.mesh.shards == 1) {
        EXPECT_NEAR(loss, expected.steps[step].first, kTolerance);
      }
      EXPECT_NEAR(norm, expected.steps[step].second, kTolerance);
    }
    expect_close(training.weights(), expected.weights);
  });
}

constexpr int kSteps = 20, kManySteps = 50;
constexpr ContextMethod kAllGather = ContextMethod::kAllGather, kRing = ContextMethod::kRing,
                        kUlysses = ContextMethod::kUlysses;

TEST(ContextParallel, ModelsWithoutAMethodHaveThatOfTheState) {
  on_mesh({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const auto& mesh = accelerator->state().groups().mesh();
    accelerator::SequenceSplitting sequences(mesh, ContextMethod::kUlysses);
    const int64_t rank = mesh->group("context")->rank();
    const at::Tensor contiguous = at::arange(4 * rank, 4 * rank + 4);
    EXPECT_TRUE(sequences.split().positions(8).equal(contiguous));
    ContextParallelSettings given;
    given.inputs_are_split = true;
    sequences.take(sequences.with(given));
    EXPECT_TRUE(sequences.split().positions(8).equal(contiguous));
    // What a variable says of context parallelism does not count in its place.
    given.method.set(ContextMethod::kRing, "PARALLELISM_CONFIG_CP_COMM_STRATEGY");
    sequences.take(sequences.with(given));
    EXPECT_TRUE(sequences.split().positions(8).equal(contiguous));
    given.method = ContextMethod::kAllGather;
    sequences.take(sequences.with(given));
    EXPECT_FALSE(sequences.split().positions(8).equal(contiguous));
  });
}

// Ranks along the axis would compute the same, and nothing else would tell.
TEST(ContextParallel, WholeSequencesOnSeveralRanksAreTold) {
  const LoggedText logged;
  on_mesh({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    accelerator::SequenceSplitting own(accelerator->state().groups().mesh(), kRing);
    own.leave_to_program();
    own.note_backward();
    accelerator::SequenceSplitting used(accelerator->state().groups().mesh(), kRing);
    used.split();
    used.note_backward();
  });
  EXPECT_EQ(logged.lines().find("no sequence was split"), std::string::npos) << logged.lines();
  on_mesh({1, 1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    const nn::ModulePtr model =
        accelerator->preparation().prepare_model(std::make_shared<nn::Linear>(2, 1, true), PrepareModelSettings());
    for (int step = 0; step < 2; step++) accelerator->backward().run(model->call(at::ones({3, 2})).sum());
  });
  const std::string words = "context_parallel_size is 2 and no sequence was split before the first backward";
  const size_t first = logged.lines().find(words);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(logged.lines().find(words, first + 1), std::string::npos);
}

TEST(ContextParallel, EachKeyOfABatchIsSplitOnce) {
  for (const char* const keys : {"ids, ids", "ids:1, mask, ids:2", "0, 0:1", "0, 1, 00"})
    tests::expect_error(Status::kInvalidArgument, "expected each key once", [&] { accelerator::SequenceKeys{keys}; });
  EXPECT_FALSE(accelerator::SequenceKeys("ids, mask:2, 0, 1, 10").empty());
}

TEST(ContextParallel, TrainsAsOneProcess) {
  const Trained expected = train_alone(kManySteps);
  for (const int64_t ranks : {2, 3, 4})
    for (const ContextMethod method : {kAllGather, kRing, kUlysses})
      expect_trains_as(expected,
                       {"context " + std::to_string(ranks) + ", method " + std::to_string(static_cast<int>(method)),
                        {1, 1, 1, ranks},
                        method});
}

TEST(ContextParallel, TrainsBesideOtherKindsOfParallelism) {
  const Trained expected = train_alone(kSteps);
  expect_trains_as(expected, {"replicas", {2, 1, 1, 2}, kRing});
  expect_trains_as(expected, {"replicas", {2, 1, 1, 2}, kUlysses});
  expect_trains_as(expected, {"shards over context alone", {1, 1, 1, 2}, kAllGather, true});
  expect_trains_as(expected, {"shards", {1, 2, 1, 2}, kRing, true});
  expect_trains_as(expected, {"shards", {1, 2, 1, 2}, kAllGather, true});
  expect_trains_as(expected, {"tensor", {1, 1, 2, 2}, kRing});
  expect_trains_as(expected, {"tensor", {1, 1, 2, 2}, kUlysses});
}

TEST(ContextParallel, TrainsWithRecomputationAndAccumulation) {
  const Trained expected = train_alone(kSteps);
  expect_trains_as(expected, {"all", {1, 1, 1, 2}, kRing, false, Recompute::kAll});
  expect_trains_as(expected, {"all, shards", {1, 1, 1, 2}, kAllGather, true, Recompute::kAll});
  expect_trains_as(expected, {"matmuls kept", {1, 1, 1, 2}, kUlysses, false, Recompute::kKeepMatmuls});
  expect_trains_as(expected, {"accumulation", {1, 1, 1, 2}, kRing, false, std::nullopt, 2});
  expect_trains_as(expected, {"accumulation, shards", {1, 2, 1, 2}, kRing, true, std::nullopt, 2});
  expect_trains_as(expected, {"all of them", {1, 1, 2, 2}, kAllGather, false, Recompute::kAll, 2});
}

TEST(ContextParallel, TrainsTorchScriptModules) {
  const Trained expected = train_alone(kSteps, scripted);
  for (const ContextMethod method : {kAllGather, kRing, kUlysses})
    expect_trains_as(expected, {"", {1, 1, 1, 2}, method, false, std::nullopt, 1, scripted});
  expect_trains_as(expected, {"replicas", {2, 1, 1, 2}, kRing, false, std::nullopt, 1, scripted});
}

TEST(ContextParallel, CheckpointsLoadOnOtherMeshes) {
  constexpr int kBefore = 2;
  const Trained expected = train_alone(kBefore);
  const Case context{"context", {1, 1, 1, 2}, kRing}, sharded{"sharded", {1, 1, 1, 2}, kAllGather, true};
  const Case alone{"alone", {1, 1, 1}}, parts{"tensor", {1, 1, 2}};
  const Case both{"tensor and context", {1, 1, 2, 2}, kUlysses};
  const std::vector<std::pair<Case, std::vector<Case>>> ways = {
      {context, {alone, parts, both}}, {sharded, {alone, parts}}, {parts, {context, sharded}}, {alone, {context}}};
  for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict})
    for (const auto& [from, others] : ways) {
      SCOPED_TRACE("from " + from.name);
      const checkpoint::tests::Folder folder;
      std::map<std::string, at::Tensor> saved;
      on_mesh(from.mesh, [&, &from = from](const AcceleratorPtr& accelerator) {
        Training training(accelerator, from, type);
        for (int step = 0; step < kBefore; step++) training.step(step);
        accelerator->checkpoints().save_state(folder / "s");
        const auto weights = training.weights();
        if (accelerator->state().is_main_process()) saved = weights;
      });
      for (const Case& to : others) {
        SCOPED_TRACE("to " + to.name);
        on_mesh(to.mesh, [&](const AcceleratorPtr& accelerator) {
          Training training(accelerator, to, type);
          accelerator->checkpoints().load_state(folder / "s");
          for (const auto& [name, tensor] : training.weights()) EXPECT_TRUE(tensor.equal(saved.at(name))) << name;
          training.step(kBefore);
          expect_close(training.weights(), expected.more);
        });
      }
    }
}

}  // namespace context_parallel_test
}  // namespace accel::parallel
