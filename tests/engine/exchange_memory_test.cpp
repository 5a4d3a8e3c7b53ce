// SPDX-License-Identifier: Apache-2.0
// Memory of exchanges: which blocks stay while other ranks may read them.
#include "parallel/regions/exchange_memory.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"
#include "rank_threads.hpp"

namespace accel::parallel {
namespace exchange_memory_test {

TEST(ExchangeMemory, KeepsBlocksUntilALaterOneIsExchanged) {
  tests::run_ranks(2, [](const std::shared_ptr<comm::Communicator>& group) {
    ExchangeMemory memory(group);
    const auto options = at::TensorOptions(at::kFloat);
    const at::Tensor first = memory.take({50000}, options), second = memory.take({50000}, options);
    const uint64_t number_of_first = memory.keep_for_readers(first);
    const uint64_t number_of_second = memory.keep_for_readers(second);
    const uint64_t number_of_first_again = memory.keep_for_readers(first);
    const auto expect_kept = [&](size_t times_first, size_t times_second) {
      EXPECT_EQ(first.use_count(), 1 + times_first);
      EXPECT_EQ(second.use_count(), 1 + times_second);
    };
    memory.let_go_of_blocks_before(number_of_first);
    expect_kept(2, 1);
    memory.let_go_of_blocks_before(number_of_second);
    expect_kept(1, 1);
    memory.let_go_of_blocks_before(number_of_first);  // of which it has let go
    expect_kept(1, 1);
    memory.let_go_of_blocks_before(number_of_first_again);
    expect_kept(1, 0);
  });
}

// Regression: buffers for long sequences stayed for the life of a model that gets short ones by now.
TEST(ExchangeMemory, FreesWhatHasLongNotBeenUsed) {
  constexpr int kOthers = 5000;
  tests::run_ranks(2, [](const std::shared_ptr<comm::Communicator>& group) {
    ExchangeMemory memory(group);
    const auto options = at::TensorOptions(at::kFloat);
    const at::Tensor held = memory.take({60000}, options);
    const auto storage_of = [](const at::Tensor& tensor) {
      return c10::weak_intrusive_ptr<c10::StorageImpl>(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
    };
    const auto of_held = storage_of(held), unused = storage_of(memory.take({50000}, options));
    memory.take({100}, options);
    EXPECT_FALSE(unused.expired());
    for (int i = 0; i < kOthers; i++) memory.take({100}, options);
    EXPECT_TRUE(unused.expired());
    EXPECT_FALSE(of_held.expired());
    EXPECT_TRUE(memory.has_alone(held));
  });
}

}  // namespace exchange_memory_test
}  // namespace accel::parallel
