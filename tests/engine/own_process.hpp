// SPDX-License-Identifier: Apache-2.0
// Runs a test in a process of its own, for what a process cannot take back.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

namespace accel::tests {

inline void in_own_process(const std::function<void()>& test) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    try {
      test();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace accel::tests
