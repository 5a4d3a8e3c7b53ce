// SPDX-License-Identifier: Apache-2.0
// Experts on ranks that are processes: one that dies in an exchange of tokens.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/collective_error.hpp"
#include "parallel/expert/token_exchange.hpp"
#include "rank_processes.hpp"

namespace accel::parallel {
namespace expert_processes_test {

using tests::AcceleratorPtr;
using tests::on_mesh_of_processes;

constexpr int kVictim = 1;
constexpr auto kNamedWithin = std::chrono::seconds(10);  // on a busy machine; far below the deadline of a collective

// The victim dies ahead of its part of a forward, of what follows the numbers of tokens, or of the backward.
enum class Death { kForward, kBetween, kBackward };

void lose_a_rank(int ranks, Death death) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(static_cast<int>(death)));
  const std::vector<int> ends = on_mesh_of_processes({1, ranks, 1, 1, ranks}, [&](const AcceleratorPtr& accelerator) {
    const RankGroup group = accelerator->state().groups().mesh()->group("expert");
    const at::Tensor rows = at::linspace(-1, 1, 8 * 64 * 64, at::kFloat).view({8 * 64, 64}).requires_grad_();
    const TokenExchange exchange(group, {1, 64});
    const bool is_victim = group->rank() == kVictim;
    bool is_last = false;
    const auto forward = [&] {
      const std::vector<int64_t> counts(static_cast<size_t>(ranks), 8 * 64 / ranks);
      return exchange.run(rows, counts, [&](const at::Tensor& own, const std::vector<int64_t>&) {
        if (is_last && is_victim && death == Death::kBetween) raise(SIGKILL);
        return own * 2;
      });
    };
    forward().sum().backward();
    is_last = true;
    at::Tensor out;
    if (death == Death::kBackward) out = forward().sum();
    if (is_victim && death != Death::kBetween) raise(SIGKILL);
    const auto begun = std::chrono::steady_clock::now();
    try {
      if (death != Death::kBackward) out = forward().sum();
      out.backward();
      ADD_FAILURE() << "no error";
    } catch (const comm::CollectiveError& error) {
      EXPECT_EQ(error.failure(), comm::CollectiveFailure::kPeerLost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(kVictim)), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
  });
  for (int rank = 0; rank < ranks; rank++) EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == kVictim ? SIGKILL : 0);
}

TEST(ExpertProcesses, ALostRankIsNamedOnAllOthers) {
  for (const int ranks : {2, 4})
    for (const Death death : {Death::kForward, Death::kBetween, Death::kBackward}) lose_a_rank(ranks, death);
}

}  // namespace expert_processes_test
}  // namespace accel::parallel
