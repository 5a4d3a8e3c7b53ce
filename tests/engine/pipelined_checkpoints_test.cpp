// SPDX-License-Identifier: Apache-2.0
// Checkpoints of models in stages on other meshes: parameters and moments have the same bits.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/formats/model_files.hpp"
#include "checkpoint_fixture.hpp"
#include "expect_error.hpp"
#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_checkpoints_test {

using namespace pipelined_model_tests;

std::string text_of(const MeshSizes& sizes) {
  return "stages " + std::to_string(sizes.stages) + ", shards " + std::to_string(sizes.shards) + ", parts " +
         std::to_string(sizes.parts);
}

Case case_on(Case test, const MeshSizes& sizes) {
  test.is_sharded = sizes.shards > 1;
  return test;
}

// Trains, or loads, and saves.
void pass_on(const Case& test, const MeshSizes& sizes, const std::string& from, const std::string& to) {
  on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, case_on(test, sizes));
    if (from.empty())
      for (int step = 0; step < 2; step++) training.step(step);
    else
      accelerator->checkpoints().load_state(from);
    accelerator->checkpoints().save_state(to);
  });
}

// What one process loads: weights and moments.
struct Loaded {
  std::map<std::string, at::Tensor> weights;
  c10::IValue moments;
};

Loaded load(const Case& test, const std::string& folder) {
  Loaded loaded;
  on_mesh(stages(1), [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    accelerator->checkpoints().load_state(folder);
    loaded.weights = training.weights();
    loaded.moments = training.optimizer()->state_dict().toGenericDict().at("state");
  });
  return loaded;
}

void expect_same(const Loaded& found, const Loaded& expected) {
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights) EXPECT_TRUE(found.weights.at(name).equal(weight)) << name;
  const auto states = found.moments.toGenericDict(), others = expected.moments.toGenericDict();
  ASSERT_EQ(states.size(), others.size());
  for (const auto& parameter : others)
    for (const auto& entry : parameter.value().toGenericDict()) {
      const c10::IValue own = states.at(parameter.key()).toGenericDict().at(entry.key());
      if (!entry.value().isTensor()) continue;
      EXPECT_TRUE(own.toTensor().equal(entry.value().toTensor())) << entry.key() << " of " << parameter.key();
    }
}

TEST(PipelinedCheckpoints, HaveTheSameBitsOnOtherMeshes) {
  const MeshSizes shards{1, 2, 1, 1, 1, 2}, parts{1, 1, 2, 1, 1, 2};
  Case sharded{"1f1b", 4}, whole{"1f1b", 4, /*is_tied=*/false};
  sharded.form = StateDictType::kShardedStateDict;
  for (const Case& test : {sharded, whole}) {
    const checkpoint::tests::Folder folder;
    for (const MeshSizes& sizes : {stages(1), stages(2), stages(3), shards, parts}) {
      const std::string saved = folder / ("of " + text_of(sizes));
      pass_on(test, sizes, "", saved);
      const Loaded expected = load(test, saved);
      for (const MeshSizes& other : {stages(2), shards}) {
        if (text_of(other) == text_of(sizes)) continue;
        SCOPED_TRACE(text_of(sizes) + " on " + text_of(other));
        const std::string again = folder / (text_of(sizes) + " on " + text_of(other));
        pass_on(test, other, saved, again);
        expect_same(load(test, again), expected);
      }
    }
  }
}

// A training that goes on is that of one process.
TEST(PipelinedCheckpoints, TrainingsGoOn) {
  for (const char* schedule : {"1f1b", "zero_bubble_v"}) {
    const Case test{schedule, 4};
    const Trained expected = train_alone(test, 1);
    const checkpoint::tests::Folder folder;
    on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
      {
        Training training(accelerator, test);
        training.step(0);
        accelerator->checkpoints().save_state(folder / "saved");
      }
      Training training(accelerator, test);
      accelerator->checkpoints().load_state(folder / "saved");
      const auto [loss, norm] = training.step(1);
      EXPECT_NEAR(loss, expected.losses[1], kTolerance);
      EXPECT_NEAR(norm, expected.norms[1], kTolerance);
    });
  }
}

// One copy of a shared weight has changed on one rank: all ranks hear of it, also those of other replicas or shards.
TEST(PipelinedCheckpoints, CopiesThatDifferAreNotSaved) {
  const MeshSizes replicas{2, 1, 1, 1, 1, 2}, shards{1, 2, 1, 1, 1, 2};
  const std::string message = "the copies of 'transformer.wte.weight' on rank 1 and rank 3 differ";
  for (const MeshSizes& sizes : {replicas, shards}) {
    const checkpoint::tests::Folder folder;
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      SCOPED_TRACE(text_of(sizes));
      Training training(accelerator, case_on({"1f1b", 4}, sizes));
      training.step(0);
      accelerator->checkpoints().save_state(folder / "equal");
      const int rank = accelerator->state().process_index();
      if (rank == 3)
        nn::find_tensor(training.inner(), "lm_head.weight").detach().view({-1}).narrow(0, 0, 1).add_(1e-12);
      tests::expect_error(Status::kCorrupt, message, [&] { accelerator->checkpoints().save_state(folder / "other"); });
      tests::expect_error(Status::kCorrupt, message,
                          [&] { accelerator->files().save_model(training.model(), folder / "model", rank == 0); });
      EXPECT_FALSE(std::filesystem::exists(folder / "other"));
      accelerator->checkpoints().load_state(folder / "equal");
      accelerator->checkpoints().save_state(folder / "other");
    });
  }
}

TEST(PipelinedCheckpoints, ModelsAreSavedAsAWhole) {
  const checkpoint::tests::Folder folder;
  on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
    const Training training(accelerator, {"1f1b", 4});
    accelerator->files().save_model(training.model(), folder / "model", accelerator->state().is_main_process());
  });
  const nn::ModulePtr model = gpt2(true);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model->parameters()) parameter.zero_();
  }
  model->load_state_dict(checkpoint::load_state_dict(folder / "model/model.safetensors"));
  const nn::ModulePtr expected = gpt2(true);
  for (const auto& [name, parameter] : nn::named_parameters(*expected))
    EXPECT_TRUE(nn::find_tensor(*model, name).equal(parameter)) << name;
}

}  // namespace pipelined_checkpoints_test
}  // namespace accel::parallel
