// SPDX-License-Identifier: Apache-2.0
// GoogleTest's program, whose status is 77, that of a skipped test, if each test that ran was skipped.
#include <gtest/gtest.h>

int main(int count, char** arguments) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&count, arguments);
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const bool all_skipped = tests.test_to_run_count() > 0 && tests.skipped_test_count() == tests.test_to_run_count();
  return status == 0 && all_skipped ? kSkipped : status;
}
