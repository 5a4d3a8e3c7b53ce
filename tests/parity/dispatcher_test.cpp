// SPDX-License-Identifier: Apache-2.0
// Rank 0 reads and the others receive, against Accelerate's DataLoaderDispatcher. The ranks are threads.
#include <gtest/gtest.h>

#include <mutex>

#include "loader_input.hpp"
#include "rank_threads.hpp"

namespace accel::parity {
namespace dispatcher_test {

TEST(DispatcherParity, SameBatchesAndSignalsAsTheReference) {
  const auto cases = read_cases("dispatcher");
  for (const int64_t ranks : {2, 3}) {
    std::mutex mutex;  // of GoogleTest's messages
    tests::run_ranks(static_cast<int>(ranks), [&](const std::shared_ptr<comm::Communicator>& communicator) {
      for (const auto& [name, input, expected] : cases) {
        if (member(input, "processes").toInt() != ranks) continue;
        const auto of_rank = member(expected, "ranks").toListRef()[communicator->rank()];
        const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
        data::ShardOptions sharding;
        sharding.num_processes = ranks;
        sharding.process_index = communicator->rank();
        sharding.split_batches = member(input, "split_batches").toBool();
        sharding.dispatch_batches = true;
        sharding.device = c10::Device(c10::kCPU);
        sharding.communicator = communicator;
        sharding.gradient_state = gradients;
        const auto loader = tests::prepared(*plain_loader(input), sharding);
        tests::Batches batches;
        std::vector<bool> ends;
        int64_t remainder = -1;
        while (const auto batch = loader->next()) {
          batches.push_back(tests::numbers_of(*batch));
          ends.push_back(gradients->end_of_dataloader());
          remainder = gradients->remainder();
        }
        const std::lock_guard lock(mutex);
        SCOPED_TRACE(name + " rank " + std::to_string(communicator->rank()));
        EXPECT_EQ(batches, list_of_lists(member(of_rank, "batches")));
        EXPECT_EQ(ends, flags(member(of_rank, "end_of_dataloader")));
        EXPECT_EQ(remainder, member(of_rank, "remainder").toInt());
        EXPECT_EQ(loader->length(), expected_length(member(of_rank, "length"))
                                        ? expected_length(member(of_rank, "length"))
                                        : loader->length());
      }
    });
  }
}

}  // namespace dispatcher_test
}  // namespace accel::parity
