// SPDX-License-Identifier: Apache-2.0
// Samplers, against what torch and transformers draw with the same seeds.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "data/samplers/callback_sampler.hpp"
#include "data/samplers/distributed_sampler.hpp"
#include "data/samplers/length_grouped_sampler.hpp"
#include "data/samplers/subset_sampler.hpp"
#include "data/samplers/weighted_sampler.hpp"
#include "expect_error.hpp"

namespace accel::data {
namespace sampler_test {

using tests::expect_error;

using Numbers = std::vector<int64_t>;

Numbers order_of(const Sampler& sampler, int64_t epoch = 0) {
  const at::Tensor order = sampler.indices(epoch);
  EXPECT_EQ(order.numel(), sampler.length());
  return {order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + order.numel()};
}

Numbers some_lengths() {
  Numbers lengths;
  for (int64_t i = 0; i < 40; ++i) lengths.push_back((i * 7919 + 13) % 31 + 1);
  return lengths;
}

TEST(SamplerWeighted, DrawsAsTorch) {
  EXPECT_EQ(order_of(WeightedSampler({0.1, 0.9, 0.4, 0.7, 3.0, 0.6}, 8, true, 7)), (Numbers{3, 3, 4, 4, 5, 4, 3, 4}));
  EXPECT_EQ(order_of(WeightedSampler({0.9, 0.4, 0.05, 0.2, 0.3, 0.1}, 5, false, 7)), (Numbers{0, 1, 3, 4, 5}));
  EXPECT_EQ(order_of(WeightedSampler({0, 1}, 3, true, 0)), (Numbers{1, 1, 1}));
  expect_error(Status::kInvalidArgument, "weight 1 is -1", [] { WeightedSampler({1, -1}, 1, true, 0); });
  expect_error(Status::kInvalidArgument, "none of 2 weights", [] { WeightedSampler({0, 0}, 1, true, 0); });
  expect_error(Status::kInvalidArgument, "num_samples is 2 without replacement; expected at most 1", [] {
    WeightedSampler({0, 1}, 2, false, 0);
  });
  expect_error(Status::kInvalidArgument, "num_samples is 0", [] { WeightedSampler({1}, 0, true, 0); });
}

TEST(SamplerSubset, ShufflesAsTorchOrKeepsTheOrder) {
  const Numbers items{3, 1, 4, 15, 9, 2, 6};
  EXPECT_EQ(order_of(SubsetSampler(items, 8)), (Numbers{1, 2, 15, 9, 3, 4, 6}));
  EXPECT_EQ(order_of(SubsetSampler(items, 5), 3), order_of(SubsetSampler(items, 8)));
  EXPECT_EQ(order_of(SubsetSampler(items, std::nullopt), 4), items);
  expect_error(Status::kInvalidArgument, "index 1 of the subset is -2", [] { SubsetSampler({0, -2}, 1); });
}

TEST(SamplerLengthGrouped, GroupsAsTransformers) {
  const Numbers lengths = some_lengths();
  EXPECT_EQ(order_of(LengthGroupedSampler(lengths, 2, std::nullopt, 5)),
            (Numbers{30, 1,  25, 16, 29, 20, 11, 33, 37, 6,  21, 23, 5,  27, 38, 9,  31, 13, 28, 39,
                     10, 32, 12, 36, 18, 2,  15, 17, 8,  19, 34, 3,  14, 7,  0,  22, 24, 35, 4,  26}));
  EXPECT_EQ(order_of(LengthGroupedSampler(lengths, 2, 3, 6)),
            (Numbers{30, 21, 12, 7, 38, 11, 1,  27, 33, 24, 37, 6, 18, 31, 0,  22, 35, 17, 10, 32,
                     36, 9,  20, 4, 23, 14, 29, 2,  15, 8,  25, 5, 16, 13, 26, 39, 34, 3,  28, 19}));
  EXPECT_EQ(order_of(LengthGroupedSampler(lengths, 16, std::nullopt, 5)),
            (Numbers{30, 21, 1,  23, 25, 5, 16, 29, 9,  20, 11, 33, 13, 37, 6, 28, 10, 32, 12, 34,
                     36, 27, 38, 18, 31, 2, 24, 15, 17, 39, 8,  19, 3,  14, 7, 0,  22, 35, 4,  26}));
  Numbers sorted = order_of(LengthGroupedSampler(lengths, 7, 1000, 3), 2);
  EXPECT_EQ(lengths[static_cast<size_t>(sorted[0])], 31);
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  expect_error(Status::kInvalidArgument, "batch_size is 0", [] { LengthGroupedSampler({1}, 0, std::nullopt, 0); });
  expect_error(Status::kInvalidArgument, "length 1 is -4", [] { LengthGroupedSampler({1, -4}, 1, std::nullopt, 0); });
  expect_error(Status::kInvalidArgument, "group_batches is 0", [] { LengthGroupedSampler({1}, 1, 0, 0); });
  expect_error(Status::kInvalidArgument, "0 lengths", [] { LengthGroupedSampler({}, 1, std::nullopt, 0); });
}

TEST(SamplerDistributed, SharesAsTorch) {
  const auto share = [](int64_t rank, bool drop_last) {
    return order_of(DistributedSampler(10, 3, rank, 2, drop_last), 4);
  };
  EXPECT_EQ(share(0, false), (Numbers{0, 1, 9, 6}));
  EXPECT_EQ(share(1, false), (Numbers{7, 8, 2, 0}));
  EXPECT_EQ(share(2, false), (Numbers{5, 3, 4, 7}));
  EXPECT_EQ(share(0, true), (Numbers{0, 1, 9}));
  EXPECT_EQ(share(2, true), (Numbers{5, 3, 4}));
  EXPECT_EQ(order_of(DistributedSampler(10, 3, 1, std::nullopt, false)), (Numbers{1, 4, 7, 0}));
  EXPECT_EQ(order_of(DistributedSampler(2, 5, 3, std::nullopt, false)), (Numbers{1}));
  EXPECT_EQ(order_of(DistributedSampler(0, 2, 1, std::nullopt, false)), Numbers{});
  expect_error(Status::kInvalidArgument, "rank is 3", [] { DistributedSampler(10, 3, 3, std::nullopt, false); });
  expect_error(Status::kInvalidArgument, "num_replicas is 0",
               [] { DistributedSampler(10, 0, 0, std::nullopt, false); });
}

TEST(SamplerCallback, AsksForEachEpoch) {
  const CallbackSampler sampler(3, [](int64_t epoch, int64_t* indices) {
    for (int64_t i = 0; i < 3; ++i) indices[i] = epoch * 10 + i;
  });
  EXPECT_EQ(order_of(sampler, 0), (Numbers{0, 1, 2}));
  EXPECT_EQ(order_of(sampler, 2), (Numbers{20, 21, 22}));
  expect_error(Status::kInvalidArgument, "sampler length is -1", [] { CallbackSampler(-1, {}); });
}

}  // namespace sampler_test
}  // namespace accel::data
