// SPDX-License-Identifier: Apache-2.0
// Which batch sizes are tried, and how the search ends.
#include "accelerator/batch_size_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "fixture.hpp"

namespace accel::parity {
namespace find_executable_batch_size_test {

using accelerator::Attempt;
using accelerator::AttemptResult;

void check_case(const c10::IValue& input, const c10::IValue& expected) {
  const int64_t fits = member(input, "fits_at_most").toInt();
  const std::string message = member(input, "error_message").toStringRef();
  // A RuntimeError of Python is what LibTorch throws; any other is an argument's.
  const Status status =
      member(input, "error_type").toStringRef() == "RuntimeError" ? Status::kTorch : Status::kInvalidArgument;
  const auto reduce = optional_member(input, "reduce");
  std::vector<int64_t> tried;
  accelerator::BatchSizeSearch search;
  search.release_memory = [] {};
  search.attempt = [&](int64_t size) -> Attempt {
    tried.push_back(size);
    if (size <= fits) return {};
    if (accelerator::is_out_of_memory(status, message)) return {AttemptResult::kOutOfMemory, message};
    throw Error(status, message);
  };
  if (reduce)
    search.reduce = [&](int64_t size, int64_t, const std::string&) {
      return reduce->toStringRef() == "halve" ? size / 2 : std::max<int64_t>(size - 3, 0);
    };
  comm::BackendCommunicator alone;
  const auto error = error_type(expected);
  try {
    const int64_t found =
        accelerator::find_executable_batch_size(alone, search, member(input, "starting_batch_size").toInt());
    ASSERT_FALSE(error.has_value()) << "found " << found;
    EXPECT_EQ(found, member(expected, "result").toInt());
  } catch (const Error& raised) {
    ASSERT_TRUE(error.has_value()) << raised.message();
    const bool reached_zero =
        member(member(expected, "error"), "message").toStringRef().find("reached zero") != std::string::npos;
    EXPECT_EQ(raised.status(), reached_zero ? Status::kOutOfMemory : status) << raised.message();
  }
  EXPECT_EQ(tried, integers(member(expected, "tried")));
}

TEST(FindExecutableBatchSizeParity, TriesTheSameSizesAsTheReference) {
  int compared = 0;
  for (const auto& [name, input, expected] : read_cases("find_executable_batch_size")) {
    SCOPED_TRACE(name);
    check_case(input, expected);
    compared++;
  }
  EXPECT_GT(compared, 20);
}

}  // namespace find_executable_batch_size_test
}  // namespace accel::parity
