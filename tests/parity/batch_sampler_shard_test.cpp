// SPDX-License-Identifier: Apache-2.0
// Which index lists each rank gets, against Accelerate's BatchSamplerShard.
#include "data/batches/batch_sampler_shard.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "fixture.hpp"

namespace accel::parity {
namespace batch_sampler_shard_test {

using Batches = std::vector<std::vector<int64_t>>;

// The lists behind a rank's batches. `units` are what the positions count: items, or whole batches of a dynamic
// sampler.
Batches batches_of(const data::BatchSamplerShard& shard, const Batches& units) {
  Batches batches;
  for (int64_t i = 0; i < shard.count(); ++i) {
    const auto positions = shard.batch(i);
    std::vector<int64_t> batch;
    for (int64_t k = positions.begin; k < positions.begin + positions.size; ++k) {
      const auto& unit = units[static_cast<size_t>(k) % units.size()];
      batch.insert(batch.end(), unit.begin(), unit.end());
    }
    batches.push_back(batch);
  }
  return batches;
}

Batches list_of_lists(const c10::IValue& value) {
  Batches lists;
  for (const auto& list : value.toListRef()) lists.push_back(integers(list));
  return lists;
}

TEST(BatchSamplerShardParity, SameBatchesAndLengthsAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("batch_sampler_shard")) {
    SCOPED_TRACE(name);
    data::Batching batching;
    Batches units;
    if (member(input, "sampler").toStringRef() == "dynamic") {
      units = list_of_lists(member(input, "batches"));
    } else {
      for (int64_t i = 0; i < member(input, "size").toInt(); ++i) units.push_back({i});
      batching.batch_size = member(input, "batch_size").toInt();
      batching.drop_last = member(input, "drop_last").toBool();
    }
    batching.num_items = static_cast<int64_t>(units.size());
    data::Shard sharding;
    sharding.num_processes = member(input, "processes").toInt();
    sharding.split_batches = member(input, "split_batches").toBool();
    sharding.even_batches = member(input, "even_batches").toBool();

    if (const auto error = error_type(expected)) {
      EXPECT_EQ(*error, "ValueError");
      try {
        data::BatchSamplerShard{batching, sharding};
        ADD_FAILURE() << "expected an error";
      } catch (const Error& refused) {
        EXPECT_EQ(refused.status(), Status::kInvalidArgument);
      }
      continue;
    }
    const auto expected_batches = member(expected, "batches");
    const auto lengths = integers(member(expected, "lengths"));
    for (int64_t rank = 0; rank < sharding.num_processes; ++rank) {
      sharding.process_index = rank;
      const data::BatchSamplerShard shard(batching, sharding);
      EXPECT_EQ(batches_of(shard, units), list_of_lists(expected_batches.toListRef()[rank])) << "rank " << rank;
      EXPECT_EQ(shard.length(), lengths[rank]) << "rank " << rank;
    }
  }
}

}  // namespace batch_sampler_shard_test
}  // namespace accel::parity
