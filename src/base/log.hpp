// SPDX-License-Identifier: Apache-2.0
// Log messages, which are passed to the application's callback, and where the variable ACCEL_LOG says: a library does
// not print unasked.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "base/log_level.hpp"

namespace accel {

using LogCallback = void (*)(int32_t level, const char* message, void* user_data);
using Destroy = void (*)(void* user_data);

// Replaces the callback; the former one's `destroy` runs once no thread is inside it. Null turns logging off.
void set_log_callback(LogCallback callback, void* user_data, Destroy destroy);
void set_log_level(LogLevel level);

// Gets the library's own messages besides the application's callback, for the sinks of loggers. It is called on the
// thread that logs, and must not log.
using LogTap = void (*)(LogLevel level, const std::string& message) noexcept;
// Null: none.
void set_log_tap(LogTap tap);

bool log_enabled(LogLevel level);
void log_message(LogLevel level, const std::string& message);

template <typename... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (log_enabled(level)) log_message(level, text(parts...));
}

}  // namespace accel
