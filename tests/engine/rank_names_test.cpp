// SPDX-License-Identifier: Apache-2.0
// Errors name ranks by their numbers in the job, also those of a group of some ranks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective_error.hpp"
#include "comm/group.hpp"
#include "nn/split/split_classes.hpp"
#include "parallel/expert/token_exchange.hpp"
#include "parallel/regions/parallel_operators.hpp"
#include "parallel/regions/vocabulary_loss.hpp"
#include "rank_processes.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace rank_names_test {

constexpr auto kTimeout = std::chrono::milliseconds(1500);

// What ranks 1 and 3 of a job of 4 say, whose call in their group fails.
std::vector<std::string> messages_of_group(const std::function<void(Communicator&)>& call) {
  std::vector<std::shared_ptr<Communicator>> groups(4);  // who leaves one is lost to the others
  return tests::messages_of(4, kTimeout, [&](Communicator& job) {
    const auto rank = static_cast<size_t>(job.rank());
    groups[rank] = create_group(job, rank % 2 == 1 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{0, 2});
    ASSERT_EQ(groups[rank]->rank(), job.rank() / 2);
    if (rank % 2 == 1) call(*groups[rank]);
  });
}

bool names(const std::string& message, const std::string& words) { return message.find(words) != std::string::npos; }

TEST(RankNames, OneThatDoesNotComeInTime) {
  const auto messages = messages_of_group([](Communicator& group) {
    if (group.rank() == 0) group.all_reduce(at::ones({5}), ReduceOp::kSum);
  });
  EXPECT_TRUE(names(messages[1], "no answer from rank 3")) << messages[1];
  EXPECT_TRUE(names(messages[1], "rank 1 waits in")) << messages[1];
  EXPECT_FALSE(names(messages[1], "rank 0")) << messages[1];
}

TEST(RankNames, OneThatSendsNothing) {
  const auto messages = messages_of_group([](Communicator& group) {
    if (group.rank() == 0) group.receive(at::empty({5}), 1, 4);
  });
  EXPECT_TRUE(names(messages[1], "recv from rank 3 with tag 4")) << messages[1];
}

TEST(RankNames, OneThatCallsSomethingElse) {
  const auto messages =
      messages_of_group([](Communicator& group) { group.all_reduce(at::ones({5 + group.rank()}), ReduceOp::kSum); });
  for (const int rank : {1, 3}) {
    EXPECT_TRUE(names(messages[rank], "rank 1 ")) << messages[rank];
    EXPECT_TRUE(names(messages[rank], "rank 3 ")) << messages[rank];
    EXPECT_FALSE(names(messages[rank], "rank 0")) << messages[rank];
  }
}

TEST(RankNames, OneWithAnotherMixtureOfExperts) {
  const auto messages = messages_of_group([](Communicator& group) {
    const parallel::TokenExchange exchange(parallel::RankGroup(&group, [](Communicator*) {}), {1, 7 + group.rank()});
    exchange.run(at::ones({4, 5}), {2, 2}, [](const at::Tensor& own, const std::vector<int64_t>&) { return own; });
  });
  EXPECT_TRUE(names(messages[1], "rank 1 has 7 intermediate features and rank 3 has 8")) << messages[1];
  EXPECT_TRUE(names(messages[3], "rank 3 has 8 intermediate features and rank 1 has 7")) << messages[3];
}

TEST(RankNames, OneWithAPartOfAnotherSize) {
  const auto messages = messages_of_group([](Communicator& group) {
    parallel::parallel_gather(at::ones({2 + group.rank()}), 0, parallel::GatheredGradient::kReplicated,
                              parallel::RankGroup(&group, [](Communicator*) {}), 4);
  });
  EXPECT_TRUE(names(messages[3], "rank 3 has 3 along dimension 0")) << messages[3];
}

TEST(RankNames, OneThatSendsAnotherLength) {
  for (const int64_t length : {100, 1 << 20}) {
    const auto messages = messages_of_group([length](Communicator& group) {
      if (group.rank() == 1)
        group.send(at::ones({length}), 0, 2);
      else
        group.receive(at::empty({length - 1}), 1, 2);
    });
    EXPECT_TRUE(names(messages[1], "rank 3")) << messages[1];
  }
}

// Groups of groups.
TEST(RankNames, OneOfAGroupOfAGroup) {
  std::vector<std::shared_ptr<Communicator>> groups(8);
  const auto messages = tests::messages_of(4, kTimeout, [&](Communicator& job) {
    if (job.rank() == 0) return;
    const auto rank = static_cast<size_t>(job.rank());
    groups[rank] = create_group(job, {3, 2, 1});
    if (rank == 1) return;
    groups[4 + rank] = create_group(*groups[rank], {0, 1});  // ranks 3 and 2 of the job
    if (rank == 3) groups[4 + rank]->barrier();
  });
  EXPECT_TRUE(names(messages[3], "no answer from rank 2")) << messages[3];
}

// Ranks 0 and 1, and 2 and 3, have the classes of a loss. Rank 3 dies in it.
TEST(RankNames, OneThatIsLostInALossOfSplitClasses) {
  constexpr int kVictim = 3;
  constexpr int64_t kClasses = 7, kRows = 5;
  for (const bool in_backward : {false, true}) {
    const std::vector<int> ends = tests::on_mesh_of_processes({1, 2, 2}, [&](const tests::AcceleratorPtr& accelerator) {
      const int rank = accelerator->state().process_index();
      const parallel::RankGroup group = accelerator->state().groups().mesh()->group("tensor");
      const parallel::Share share = parallel::share_of(kClasses, group->rank(), group->size());
      const auto loss = [&] {
        const at::Tensor scores = at::linspace(-2, 3, kRows * share.size).view({kRows, share.size}).requires_grad_();
        return at::cross_entropy_loss(
            parallel::class_scores(scores, parallel::split_classes(group, kClasses, false), group),
            at::arange(kRows, at::kLong));
      };
      loss().backward();
      at::Tensor value;
      if (in_backward) value = loss();
      if (rank == kVictim) raise(SIGKILL);
      if (rank < 2) return;
      const auto begun = std::chrono::steady_clock::now();
      try {
        if (!in_backward) value = loss();
        value.backward();
        loss();  // a backward has no communication
        ADD_FAILURE() << "no error";
      } catch (const CollectiveError& error) {
        EXPECT_EQ(error.failure(), CollectiveFailure::kPeerLost) << error.what();
        EXPECT_TRUE(names(error.what(), "rank 3")) << error.what();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
    });
    for (int rank = 0; rank < 4; rank++)
      EXPECT_EQ(ends[static_cast<size_t>(rank)], rank == kVictim ? SIGKILL : 0) << rank;
  }
}

}  // namespace rank_names_test
}  // namespace accel::comm
