// SPDX-License-Identifier: Apache-2.0
// Ports that launchers choose for their jobs.
#include "launch/ranks/claimed_port.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace accel::launch {
namespace {

// Regression: two launchers on one machine that started at the same moment could choose the same port.
TEST(ClaimedPort, IsGivenOnceWhileItIsHeld) {
  // 300 of some 2,700 ports by chance alone would hold an equal pair.
  const std::vector<ClaimedPort> claimed(300);
  std::set<int> numbers;
  for (const ClaimedPort& port : claimed) {
    EXPECT_TRUE(is_port_free(port.number()));
    numbers.insert(port.number());
  }
  EXPECT_EQ(numbers.size(), claimed.size());
}

}  // namespace
}  // namespace accel::launch
