// Memory of exchanges: which blocks stay while other ranks may read them.
#include "parallel/regions/exchange_memory.hpp"

#include <ATen/core/Tensor.h>
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

}  // namespace exchange_memory_test
}  // namespace accel::parallel
