// Hears the library's own messages besides the application's callback: sinks of loggers do.
#pragma once

#include <string>

#include "base/log.hpp"

namespace accel {

// Called on the thread that logs. It must not log.
using LogTap = void (*)(LogLevel level, const std::string& message) noexcept;

// Null: none.
void set_log_tap(LogTap tap);

}  // namespace accel
