// SPDX-License-Identifier: Apache-2.0
// Describes an exception in one line. Header only: backend plugins use no symbol of libaccel.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

namespace accel::comm {

// The first line; LibTorch's errors are followed by a stack trace.
inline std::string error_line(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "no memory";  // short enough for std::string not to allocate
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return message.substr(0, message.find('\n'));
}

}  // namespace accel::comm
