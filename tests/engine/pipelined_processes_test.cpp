// Stages on ranks that are processes: one that dies in a step.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/collective_error.hpp"
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

}  // namespace pipelined_processes_test
}  // namespace accel::parallel
