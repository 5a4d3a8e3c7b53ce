// SPDX-License-Identifier: Apache-2.0
// Split layers on ranks that are processes: one that dies in a step is named, and what they saved loads on other
// meshes.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "comm/collective_error.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "rank_processes.hpp"
#include "split_model_fixture.hpp"

namespace accel::parallel {
namespace split_processes_test {

using namespace split_model_tests;
using tests::on_mesh_of_processes;

constexpr int kVictim = 1, kRanks = 4;
constexpr auto kNamedWithin = std::chrono::seconds(10);  // on a busy machine; far below the deadline of a collective

// The victim dies ahead of the sum of a row layer, of the exchange in the loss, or of a sum of gradients.
enum class Death { kForward, kLoss, kBackward };

const Case kCase{"GPT-2", gpt2, "auto", 1e-9, /*sequence_parallel=*/false, /*loss_parallel=*/true};

PrepareModelSettings sharded_checkpoints() {
  PrepareModelSettings settings;
  settings.fsdp.state_dict_type = StateDictType::kShardedStateDict;
  return settings;
}

void die(Training& training, Death death) {
  const auto raise_signal = [](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
    raise(SIGKILL);
    return std::nullopt;
  };
  nn::CallHooks& hooks =
      training.inner()->find(death == Death::kLoss ? "lm_head" : "transformer.h.1.mlp.c_proj")->hooks();
  if (death == Death::kBackward)
    hooks.add_backward_pre_hook(raise_signal);
  else
    hooks.add_pre_hook(raise_signal);
  training.step(2);
}

// After two steps that are saved.
void lose_a_rank(Death death, const std::string& folder) {
  SCOPED_TRACE(static_cast<int>(death));
  const std::vector<int> ends = on_mesh_of_processes({1, 1, kRanks}, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, kCase, sharded_checkpoints());
    for (int step = 0; step < 2; step++) training.step(step);
    accelerator->checkpoints().save_state(folder);
    if (accelerator->state().process_index() == kVictim) die(training, death);
    const auto begun = std::chrono::steady_clock::now();
    try {
      training.step(2);
      ADD_FAILURE() << "no error";
    } catch (const comm::CollectiveError& error) {
      EXPECT_EQ(error.failure(), comm::CollectiveFailure::kPeerLost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(kVictim)), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
  });
  for (int rank = 0; rank < kRanks; rank++) EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == kVictim ? SIGKILL : 0);
}

// Writes the norm of the gradients of the third step into a file. Without a folder to load from the first two are
// computed.
void write_norm(const MeshSizes& sizes, const std::string& folder, const std::string& file) {
  for (const int end : on_mesh_of_processes(sizes, [&](const AcceleratorPtr& accelerator) {
         Training training(accelerator, kCase, sharded_checkpoints());
         if (folder.empty())
           for (int step = 0; step < 2; step++) training.step(step);
         else
           accelerator->checkpoints().load_state(folder);
         const double norm = training.step(2).second;
         if (accelerator->state().process_index() != 0) return;
         std::ofstream stream(file);
         stream.precision(std::numeric_limits<double>::max_digits10);
         stream << norm;
       }))
    EXPECT_EQ(end, 0) << text_of(sizes);
}

double norm_in(const std::string& file) {
  double norm = 0;
  std::ifstream(file) >> norm;
  return norm;
}

TEST(SplitProcesses, ALostRankIsNamedAndItsCheckpointLoadsOnOtherMeshes) {
  const checkpoint::tests::Folder folder;
  write_norm({1, 1, 1}, "", folder / "alone");
  const double expected = norm_in(folder / "alone");
  EXPECT_GT(expected, 0);
  for (const Death death : {Death::kForward, Death::kLoss, Death::kBackward}) {
    const std::string saved = folder / std::to_string(static_cast<int>(death));
    lose_a_rank(death, saved);
    for (const MeshSizes& sizes : {MeshSizes{1, 1, 2}, MeshSizes{1, 2, 2}}) {
      write_norm(sizes, saved, folder / "again");
      EXPECT_NEAR(norm_in(folder / "again"), expected, 1e-9) << text_of(sizes);
    }
  }
}

}  // namespace split_processes_test
}  // namespace accel::parallel
