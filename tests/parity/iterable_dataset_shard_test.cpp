// SPDX-License-Identifier: Apache-2.0
// Which samples of a stream each rank gets, against Accelerate's IterableDatasetShard.
#include <gtest/gtest.h>

#include "loader_input.hpp"

namespace accel::parity {
namespace iterable_dataset_shard_test {

std::shared_ptr<data::Loader> shard(const c10::IValue& input, int64_t rank) {
  data::LoaderOptions options;
  options.batch_size = member(input, "batch_size").toInt();
  options.drop_last = member(input, "drop_last").toBool();
  data::ShardOptions sharding;
  sharding.num_processes = member(input, "processes").toInt();
  sharding.process_index = rank;
  sharding.split_batches = member(input, "split_batches").toBool();
  return tests::prepared(data::DataLoader(tests::numbers("sized_stream", member(input, "size").toInt()), options),
                         sharding);
}

TEST(IterableDatasetShardParity, SameSamplesAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("iterable_dataset_shard")) {
    SCOPED_TRACE(name);
    const int64_t ranks = member(input, "processes").toInt(), batch_size = member(input, "batch_size").toInt();
    const bool split = member(input, "split_batches").toBool();
    // In Accelerate a batch of one row that several ranks share leaves every rank empty.
    if (error_type(expected) || (split && batch_size == 1 && ranks > 1)) {
      EXPECT_THROW(shard(input, 0), Error);
      continue;
    }
    const auto items = member(expected, "items");
    const auto lengths = integers(member(expected, "lengths"));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto loader = shard(input, rank);
      const int64_t rows = split ? batch_size / ranks : batch_size;
      // Accelerate counts whole batches of all ranks also where they share one, and so too few or too many (P19).
      const auto length = loader->length();
      tests::Numbers all;
      for (const auto& batch : tests::epoch_of(*loader)) all.insert(all.end(), batch.begin(), batch.end());
      EXPECT_EQ(length, (static_cast<int64_t>(all.size()) + rows - 1) / rows);
      auto from_reference = integers(items.toListRef()[rank]);
      // One process gets the items as they are; Accelerate's shard of one process fills up its last batch, but no
      // prepared loader of one process has a shard.
      if (ranks == 1 && from_reference.size() > all.size()) from_reference.resize(all.size());
      EXPECT_EQ(all, from_reference) << "rank " << rank;
      if (!split && ranks > 1) {
        EXPECT_EQ(*length * rows, lengths[rank]) << "rank " << rank;
      }
    }
  }
}

}  // namespace iterable_dataset_shard_test
}  // namespace accel::parity
