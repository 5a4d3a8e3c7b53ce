// SPDX-License-Identifier: Apache-2.0
// Stages on ranks that are processes: one that dies in a step.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_fixture.hpp"
#include "comm/collective_error.hpp"
#include "expect_error.hpp"
#include "pipelined_model_fixture.hpp"
#include "rank_processes.hpp"

namespace accel::parallel {
namespace pipelined_processes_test {

using namespace pipelined_model_tests;
using tests::on_mesh_of_processes;

constexpr int kVictim = 1;
constexpr auto kNamedWithin = std::chrono::seconds(10);  // on a busy machine; far below the deadline of a message

// The victim dies ahead of a step, in a forward of its stage, or ahead of a backward.
enum class Death { kStep, kForward, kBackward };

void lose_a_stage(int ranks, Death death) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(static_cast<int>(death)));
  const std::vector<int> ends = on_mesh_of_processes(stages(ranks), [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, {"1f1b", 4});
    const bool is_victim = accelerator->state().groups().mesh()->coordinate("pipeline") == kVictim;
    training.step(0);
    if (is_victim) {
      if (death == Death::kStep) raise(SIGKILL);
      int calls = 0;
      nn::CallHooks& hooks = own_block(*training.model())->hooks();
      if (death == Death::kForward)
        hooks.add_pre_hook([&](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
          if (++calls == 2) raise(SIGKILL);
          return std::nullopt;
        });
      else
        hooks.add_backward_pre_hook([](nn::Module&, const nn::Inputs&) -> std::optional<nn::Inputs> {
          raise(SIGKILL);
          return std::nullopt;
        });
      training.step(1);
    }
    const auto begun = std::chrono::steady_clock::now();
    try {
      training.step(1);
      ADD_FAILURE() << "no error";
    } catch (const comm::CollectiveError& error) {
      EXPECT_EQ(error.failure(), comm::CollectiveFailure::kPeerLost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(kVictim)), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
  });
  for (int rank = 0; rank < ranks; rank++) EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == kVictim ? SIGKILL : 0);
}

TEST(PipelinedProcesses, ALostStageIsNamedOnAllOthers) {
  for (const int ranks : {2, 4})
    for (const Death death : {Death::kStep, Death::kForward, Death::kBackward}) lose_a_stage(ranks, death);
}

// The victim dies in a save, behind the first one, which another number of stages loads.
TEST(PipelinedProcesses, TheCheckpointBeforeALostSaveIsLoaded) {
  const Case test{"1f1b", 4};
  const checkpoint::tests::Folder folder;
  const std::vector<int> ends = on_mesh_of_processes(stages(3), [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    training.step(0);
    accelerator->checkpoints().save_state(folder / "first");
    training.step(1);
    if (accelerator->state().process_index() == kVictim)
      accelerator->checkpoints().add_save_hook([](std::vector<c10::IValue>&, const std::string&) { raise(SIGKILL); });
    const auto begun = std::chrono::steady_clock::now();
    const std::string said = tests::message_of([&] { accelerator->checkpoints().save_state(folder / "second"); });
    EXPECT_NE(said.find("rank " + std::to_string(kVictim)), std::string::npos) << said;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
  });
  for (int rank = 0; rank < 3; rank++) EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == kVictim ? SIGKILL : 0);
  const std::vector<int> loaded = on_mesh_of_processes(stages(2), [&](const AcceleratorPtr& accelerator) {
    const Trained expected = train_alone(test, 1);
    Training training(accelerator, test);
    accelerator->checkpoints().load_state(folder / "first");
    const auto [loss, norm] = training.step(1);
    EXPECT_NEAR(loss, expected.losses[1], kTolerance);
    EXPECT_NEAR(norm, expected.norms[1], kTolerance);
    expect_weights(training.inner(), expected.weights);
  });
  EXPECT_EQ(loaded, std::vector<int>(2, 0));
}

}  // namespace pipelined_processes_test
}  // namespace accel::parallel
