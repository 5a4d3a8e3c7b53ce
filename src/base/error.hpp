// The engine's exception. Messages are one line: the offending value, what was expected, what to do.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <utility>

#include "base/status.hpp"

namespace accel {

class Error : public std::exception {
 public:
  Error(Status status, std::string message) : status_(status), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  Status status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  Status status_;
  std::string message_;
};

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <typename... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
  throw Error(status, text(parts...));
}

template <typename... Parts>
void require(bool condition, Status status, const Parts&... parts) {
  if (!condition) fail(status, parts...);
}

}  // namespace accel
