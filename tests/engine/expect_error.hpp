// SPDX-License-Identifier: Apache-2.0
// That a call ends with an error of this status, whose message is one line that contains `part`.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "base/error.hpp"

namespace accel::tests {

template <typename Call>
void expect_error(Status status, const std::string& part, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
  }
}

// The message of the error that a call ends with.
template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace accel::tests
