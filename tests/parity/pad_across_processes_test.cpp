// SPDX-License-Identifier: Apache-2.0
// Padding to the largest size over the ranks.
#include <gtest/gtest.h>

#include "comm/collectives.hpp"
#include "fixture.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace pad_across_processes_test {

TEST(PadAcrossProcessesParity, SameTensorsAsTheReference) {
  int compared = 0;
  for (const auto& test_case : read_cases("pad_across_processes")) {
    SCOPED_TRACE(test_case.name);
    const c10::IValue &input = test_case.input, &expected = test_case.expected;
    const auto data = member(input, "data").toListRef(), padded = member(expected, "padded").toListRef();
    tests::run_ranks(static_cast<int>(member(input, "processes").toInt()),
                     [&](const std::shared_ptr<comm::Communicator>& communicator) {
                       const c10::IValue pad_index = member(input, "pad_index");
                       const c10::IValue result = comm::pad_across_processes(
                           *communicator, data[communicator->rank()], member(input, "dim").toInt(),
                           pad_index.isInt() ? static_cast<double>(pad_index.toInt()) : pad_index.toDouble(),
                           member(input, "pad_first").toBool());
                       EXPECT_TRUE(tree::equal(result, padded[communicator->rank()]))
                           << test_case.name << " rank " << communicator->rank() << ": " << tree::to_json(result);
                     });
    compared++;
  }
  EXPECT_GT(compared, 20);
}

}  // namespace pad_across_processes_test
}  // namespace accel::parity
