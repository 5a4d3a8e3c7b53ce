// SPDX-License-Identifier: Apache-2.0
#include "track/event_frame.hpp"

#include <gtest/gtest.h>

namespace accel::track {
namespace {

// The check values of RFC 3720, appendix B.4, and of the catalogue of CRCs.
TEST(EventFrame, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFrame, AFrameHasItsLengthAndTwoChecksums) {
  std::string out = "before";
  append_frame(out, "content");
  ASSERT_EQ(out.size(), 6U + 8 + 4 + 7 + 4);
  EXPECT_EQ(out.substr(6, 8), std::string("\x07\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(out.substr(18, 7), "content");
}

}  // namespace
}  // namespace accel::track
