// SPDX-License-Identifier: Apache-2.0
// Sizes beyond 2^31 elements and bytes, where a number that is too small would wrap. Nothing of that size is allocated:
// tensors are on the device "meta", which has shapes only.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/ucx/algorithms/slices.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace sizes_test {

constexpr int64_t kLarge = (int64_t{1} << 33) + 6;

at::Tensor large(int64_t rows) { return at::empty({rows}, at::TensorOptions().device(at::kMeta).dtype(at::kDouble)); }

FlightEntry latest(const Communicator& communicator) {
  return communicator.flight_record()->latest_done(~uint64_t{0}).value();
}

TEST(Sizes, SlicesCoverLargeTensors) {
  for (const size_t bytes : {size_t{1}, size_t{1} << 31, (size_t{1} << 32) + 4, (size_t{1} << 45) - 2})
    for (int count = 1; count <= 128; count++) {
      size_t end = 0;
      for (int number = 0; number < count; number++) {
        const auto [first, last] = ucx::slice_of(bytes, number, count);
        ASSERT_EQ(first, end);
        ASSERT_LE(first, last);
        ASSERT_TRUE(first % 64 == 0 || first == bytes);
        ASSERT_LE(last - first, bytes / static_cast<size_t>(count) + 64);
        end = last;
      }
      ASSERT_EQ(end, bytes);
    }
}

TEST(Sizes, PartsOfLargeTensorsAreCounted) {
  tests::run_ranks(
      2,
      [](const std::shared_ptr<comm::Communicator>& communicator) {
        communicator->all_reduce(large(kLarge), ReduceOp::kSum);
        EXPECT_EQ(latest(*communicator).bytes, 8 * kLarge);
        communicator->all_gather(large(kLarge), large(2 * kLarge));
        EXPECT_EQ(latest(*communicator).bytes, 8 * kLarge);
        // Twice as many, modulo 2^32.
        EXPECT_THROW(communicator->all_gather(large(kLarge), large(12)), Error);
        EXPECT_THROW(communicator->run(Collective::reduce_scatter(large(12), ReduceOp::kSum, large(kLarge))), Error);
        EXPECT_EQ(gather(*communicator, large(kLarge)).toTensor().size(0), 2 * kLarge);
      },
      std::chrono::seconds(60), "cpu:ucx,meta:stub");
}

TEST(Sizes, RowsAreSharedAndPaddedBeyondTwoToTheThirtyOne) {
  BackendCommunicator alone({c10::DeviceType::CPU, c10::DeviceType::Meta});
  const at::Tensor tensor = large(kLarge);
  EXPECT_EQ(pad_across_processes(alone, tensor, 0, 0, false).toTensor().size(0), kLarge);
  EXPECT_EQ(reduce(alone, tensor, ReduceOp::kSum, 1.0).toTensor().numel(), kLarge);
  EXPECT_EQ(tree::slice(tensor, kLarge - 3, kLarge).toTensor().size(0), 3);
}

}  // namespace sizes_test
}  // namespace accel::comm
