// SPDX-License-Identifier: Apache-2.0
// What each rank's prepared loader gives and says, against Accelerate's prepare_data_loader.
#include <gtest/gtest.h>

#include "loader_input.hpp"

namespace accel::parity {
namespace prepare_data_loader_test {

TEST(PrepareDataLoaderParity, SameBatchesAndSignalsAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("prepare_data_loader")) {
    SCOPED_TRACE(name);
    data::ShardOptions sharding;
    sharding.num_processes = member(input, "processes").toInt();
    sharding.split_batches = member(input, "split_batches").toBool();
    sharding.even_batches = member(input, "even_batches").toBool();
    if (error_type(expected)) {
      EXPECT_THROW(tests::prepared(*plain_loader(input), sharding), Error);
      continue;
    }
    const bool stream = member(input, "dataset").toStringRef() != "map";
    const int64_t size = member(input, "size").toInt();
    for (int64_t rank = 0; rank < sharding.num_processes; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const auto of_rank = member(expected, "ranks").toListRef()[rank];
      const auto gradients = std::make_shared<state::GradientState>(state::AccumulationSettings{});
      sharding.process_index = rank;
      sharding.gradient_state = gradients;
      const auto loader = tests::prepared(*plain_loader(input), sharding);
      const auto length = loader->length();
      tests::Batches batches;
      std::vector<bool> ends;
      int64_t remainder = -1;
      while (const auto batch = loader->next()) {
        batches.push_back(tests::numbers_of(*batch));
        ends.push_back(gradients->end_of_dataloader());
        remainder = gradients->remainder();
      }
      EXPECT_EQ(batches, list_of_lists(member(of_rank, "batches")));
      EXPECT_EQ(ends, flags(member(of_rank, "end_of_dataloader")));
      if (batches.empty()) continue;
      const auto reported = optional_member(of_rank, "length");
      const int64_t total = loader->total_batch_size().value();
      if (!stream) {
        // Where an uneven last batch is split, Accelerate also counts it on ranks that get nothing of it.
        const bool overcounts = sharding.splits_batches() && !sharding.even_batches;
        EXPECT_EQ(length, overcounts ? static_cast<int64_t>(batches.size()) : expected_length(*reported));
        EXPECT_EQ(total, member(of_rank, "total_batch_size").toInt());
        EXPECT_EQ(remainder, member(of_rank, "remainder").toInt());
        continue;
      }
      // Of streams Accelerate takes the batch of one rank for that of all, and the padded length for the true one,
      // so that its remainder says nothing (P3). Here both are true at the last batch.
      EXPECT_EQ(length.has_value(), expected_length(*reported).has_value());
      if (length) {
        EXPECT_EQ(*length, static_cast<int64_t>(batches.size()));
      }
      const bool drops = member(input, "drop_last").toBool();
      EXPECT_EQ(remainder, drops ? -1 : size % total);
    }
  }
}

}  // namespace prepare_data_loader_test
}  // namespace accel::parity
