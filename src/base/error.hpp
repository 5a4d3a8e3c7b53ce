// SPDX-License-Identifier: Apache-2.0
// Error: the exception of the engine. Messages are one line: the offending value, what was expected, what to do.
#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
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

// A value that is written into a message with `<<`. Messages are built in hundreds of places with different types: only
// this conversion is instantiated for each of them, not the formatting.
class TextPart {
 public:
  template <typename T>
  explicit TextPart(const T& value)
      : value_(&value), write_([](std::ostream& out, const void* shown) { out << *static_cast<const T*>(shown); }) {}
  explicit TextPart(const char* const& value)
      : value_(value), write_([](std::ostream& out, const void* shown) { out << static_cast<const char*>(shown); }) {}
  template <size_t kSize>
  explicit TextPart(const char (&value)[kSize]) : TextPart(static_cast<const char* const&>(value)) {}

  friend std::ostream& operator<<(std::ostream& out, const TextPart& part) {
    part.write_(out, part.value_);
    return out;
  }

 private:
  const void* value_;
  void (*write_)(std::ostream& out, const void* shown);
};

[[gnu::noinline]] inline std::string join(std::initializer_list<TextPart> parts) {
  std::ostringstream stream;
  stream.exceptions(std::ios_base::badbit);  // else a lack of memory cuts the text short in silence
  for (const TextPart& part : parts) stream << part;
  return stream.str();
}

[[noreturn, gnu::noinline]] inline void fail_with(Status status, std::initializer_list<TextPart> parts) {
  throw Error(status, join(parts));
}

template <typename... Parts>
std::string text(const Parts&... parts) {
  return join({TextPart(parts)...});
}

template <typename... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
  fail_with(status, {TextPart(parts)...});
}

template <typename... Parts>
void require(bool condition, Status status, const Parts&... parts) {
  if (!condition) fail_with(status, {TextPart(parts)...});
}

}  // namespace accel
