// SPDX-License-Identifier: Apache-2.0
// Refusals in the form that clients of OpenAI's routes expect.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace accel::program {

// A request that is refused: {"error": {"message", "type", "param", "code"}} with an HTTP status.
class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, std::string param = "", std::string code = "")
      : status_(status), message_(std::move(message)), param_(std::move(param)), code_(std::move(code)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  int status() const { return status_; }
  const std::string& param() const { return param_; }

  std::string json() const;

 private:
  int status_;
  std::string message_;
  std::string param_;  // the field of the request; "": none in particular
  std::string code_;   // for programs
};

}  // namespace accel::program
