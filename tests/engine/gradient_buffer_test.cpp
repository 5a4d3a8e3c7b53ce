// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_buffer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/backend/backend_communicator.hpp"
#include "expect_error.hpp"

namespace accel::parallel {
namespace gradient_buffer_test {

std::vector<at::Tensor> parameters(const std::vector<int64_t>& numels) {
  std::vector<at::Tensor> tensors;
  for (const int64_t numel : numels) tensors.push_back(at::zeros({numel}, at::kFloat));
  return tensors;
}

TEST(GradientBufferOrder, BucketsAreFilledToTheirLimits) {
  const auto four = parameters({4, 4, 4, 4});  // 16 bytes each
  EXPECT_EQ(fill_buckets(four, {0, 1, 2, 3}, {16, 32}), (BucketOrder{{0}, {1, 2}, {3}}));
  EXPECT_EQ(fill_buckets(four, {3, 0, 2, 1}, {1 << 20}), (BucketOrder{{3, 0, 2, 1}}));
  EXPECT_EQ(fill_buckets_backwards(four, {16, 32}), (BucketOrder{{3}, {1, 2}, {0}}));
  EXPECT_EQ(fill_buckets_backwards(four, {1}), (BucketOrder{{3}, {2}, {1}, {0}}));
}

TEST(GradientBufferOrder, ABucketHasOneDtype) {
  const std::vector<at::Tensor> mixed{at::zeros({2}, at::kFloat), at::zeros({2}, at::kHalf),
                                      at::zeros({2}, at::kFloat)};
  EXPECT_EQ(fill_buckets_backwards(mixed, {1 << 20}), (BucketOrder{{1}, {0, 2}}));
}

TEST(GradientBufferOrder, ASizeIsPositive) {
  EXPECT_EQ(bucket_bytes(0.5), kMegabyte / 2);
  tests::expect_error(Status::kInvalidArgument, "bucket_cap_mb is 0; expected", [] { bucket_bytes(0); });
}

TEST(GradientBufferMemory, GradientsAreViewsOfTheirBuckets) {
  const comm::BackendCommunicator alone;
  const std::vector<at::Tensor> tensors{at::zeros({3}), at::zeros({2, 5}).t(), at::zeros({2})};
  const GradientBuffer packed(tensors, {{2}, {0, 1}}, GradientLayout::kPacked, alone);
  EXPECT_EQ(packed.order(), (BucketOrder{{2}, {0, 1}}));
  EXPECT_EQ(packed.buckets()[1].memory.numel(), 13);
  EXPECT_EQ(packed.buckets()[1].offsets, (std::vector<size_t>{0, 3}));
  EXPECT_EQ(packed.gradient(1).strides(), tensors[1].strides());
  packed.gradient(1).fill_(1);
  EXPECT_EQ(packed.buckets()[1].memory.sum().item<double>(), 10);

  const GradientBuffer aligned(tensors, {{2}, {0, 1}}, GradientLayout::kAligned, alone);
  EXPECT_EQ(aligned.buckets()[1].offsets, (std::vector<size_t>{0, 16}));
  EXPECT_TRUE(aligned.gradient(1).is_contiguous());
  EXPECT_EQ(aligned.gradient(1).sizes(), tensors[1].sizes());
}

TEST(GradientBufferReady, CompleteBucketsAreTakenInTheirOrder) {
  const comm::BackendCommunicator alone;
  GradientBuffer buffer(parameters({1, 1, 1}), {{2}, {0, 1}}, GradientLayout::kPacked, alone);
  for (int round = 0; round < 2; round++) {
    buffer.set_ready(0);
    buffer.set_ready(0);  // counts once
    EXPECT_FALSE(buffer.take_complete());
    buffer.set_ready(1);
    EXPECT_FALSE(buffer.take_complete()) << "the first bucket is not complete";
    buffer.set_ready(2);
    EXPECT_FALSE(buffer.take_complete(0));
    EXPECT_EQ(buffer.take_complete(), size_t{0});
    EXPECT_FALSE(buffer.take_complete(1));
    EXPECT_FALSE(buffer.all_taken());
    EXPECT_EQ(buffer.take_complete(), size_t{1});
    EXPECT_TRUE(buffer.all_taken());
    EXPECT_FALSE(buffer.take_complete());
    buffer.start();
    EXPECT_FALSE(buffer.is_ready(0));
  }
}

}  // namespace gradient_buffer_test
}  // namespace accel::parallel
