// SPDX-License-Identifier: Apache-2.0
// Checkpoints of split models on other meshes: parameters and moments have the same bits.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <string>

#include "checkpoint_fixture.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expert_model_fixture.hpp"

namespace accel::parallel {
namespace split_checkpoints_test {

using namespace split_model_tests;

constexpr MeshSizes kMeshes[] = {{1, 1, 1}, {1, 1, 2}, {1, 2, 2}, {1, 1, 3}};

// Loads on the mesh, and saves again in another folder, if there is one.
void pass_on(const Case& test, const MeshSizes& sizes, const PrepareModelSettings& settings, const std::string& from,
             const std::string& to) {
  on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test, settings);
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

Loaded load(const Case& test, const PrepareModelSettings& settings, const std::string& folder) {
  Loaded loaded;
  on_mesh({1, 1, 1}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test, settings);
    accelerator->checkpoints().load_state(folder);
    loaded.weights = training.weights();
    loaded.moments = training.optimizer()->state_dict().toGenericDict().at("state");
  });
  return loaded;
}

void expect_same(const Loaded& found, const Loaded& expected) {
  expect_close(found.weights, expected.weights, 0);
  const auto states = found.moments.toGenericDict(), others = expected.moments.toGenericDict();
  ASSERT_EQ(states.size(), others.size());
  for (const auto& parameter : others)
    for (const auto& entry : parameter.value().toGenericDict()) {
      const c10::IValue own = states.at(parameter.key()).toGenericDict().at(entry.key());
      if (!entry.value().isTensor()) continue;
      EXPECT_TRUE(own.toTensor().equal(entry.value().toTensor())) << entry.key() << " of " << parameter.key();
    }
}

TEST(SplitCheckpoints, HaveTheSameBitsOnOtherMeshes) {
  const Case cases[] = {{"GPT-2", gpt2, "auto"}, {"Llama", [] { return llama("", 1, 6); }, "auto", kFloatTolerance}};
  for (const StateDictType type : {StateDictType::kShardedStateDict, StateDictType::kFullStateDict})
    for (const Case& test : cases) {
      PrepareModelSettings settings;
      settings.fsdp.state_dict_type = type;
      for (size_t i = 0; i < std::size(kMeshes); i++) {
        const checkpoint::tests::Folder folder;
        pass_on(test, kMeshes[i], settings, "", folder / "saved");
        const Loaded expected = load(test, settings, folder / "saved");
        // Sharded ones on each other mesh, whole ones on the next.
        const size_t last = type == StateDictType::kShardedStateDict ? std::size(kMeshes) : 2;
        for (size_t further = 1; further < last; further++) {
          const MeshSizes& other = kMeshes[(i + further) % std::size(kMeshes)];
          SCOPED_TRACE(test.name + " of " + text_of(kMeshes[i]) + " on " + text_of(other));
          const std::string again = folder / text_of(other);
          pass_on(test, other, settings, folder / "saved", again);
          expect_same(load(test, settings, again), expected);
        }
      }
    }
}

// Different numbers of ranks share the experts out, whole or split.
TEST(SplitCheckpoints, ExpertsHaveTheSameBitsOnOtherMeshes) {
  const Case test{"experts", with_experts, "none"};
  PrepareModelSettings settings;
  settings.fsdp.state_dict_type = StateDictType::kShardedStateDict;
  constexpr MeshSizes kOthers[] = {{1, 2, 1, 1, 2}, {1, 4, 1, 1, 4}, {1, 4, 1, 1, 2}, {1, 1, 1}, {1, 2, 2, 1, 2}};
  const checkpoint::tests::Folder folder;
  pass_on(test, kOthers[0], settings, "", folder / "0");
  const Loaded expected = load(test, settings, folder / "0");
  settings.expert_parallel.tensor_parallel_experts = true;
  for (size_t i = 1; i < std::size(kOthers); i++) {
    SCOPED_TRACE(text_of(kOthers[i]) + ", experts " + std::to_string(kOthers[i].experts));
    pass_on(test, kOthers[i], settings, folder / std::to_string(i - 1), folder / std::to_string(i));
    expect_same(load(test, settings, folder / std::to_string(i)), expected);
  }
}

}  // namespace split_checkpoints_test
}  // namespace accel::parallel
