// SPDX-License-Identifier: Apache-2.0
// What the report of a machine says of its NVIDIA GPUs.
#include "launch/nvidia_gpus.hpp"

#include <gtest/gtest.h>

namespace accel::launch {
namespace nvidia_gpus_test {

TEST(NvidiaGpus, TheDriversLinesAreRead) {
  const auto gpus = parse_nvidia_gpus(
      "00000000:8D:00.0, NVIDIA H200, 9.0\n00000001:01:00.0, NVIDIA GeForce RTX 3090, 8.6\r\nNo devices were found\n");
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(gpus[0].address, "0000:8d:00.0");
  EXPECT_EQ(gpus[0].model, "NVIDIA H200");
  EXPECT_EQ(gpus[0].compute_capability, "9.0");
  EXPECT_EQ(gpus[1].address, "0001:01:00.0");
  EXPECT_EQ(gpus[1].model, "NVIDIA GeForce RTX 3090");
  EXPECT_EQ(gpus[1].compute_capability, "8.6");
  EXPECT_TRUE(parse_nvidia_gpus("").empty());
}

TEST(NvidiaGpus, EightBitsFromAdaOn) {
  for (const char* const with : {"8.9", "9.0", "10.0", "12.1"}) EXPECT_TRUE(has_fp8(with)) << with;
  for (const char* const without : {"8.6", "7.5", "", "[N/A]"}) EXPECT_FALSE(has_fp8(without)) << without;
}

}  // namespace nvidia_gpus_test
}  // namespace accel::launch
