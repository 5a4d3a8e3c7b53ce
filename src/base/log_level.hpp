// SPDX-License-Identifier: Apache-2.0
// The levels of log messages, as in Python's logging.
#pragma once

#include <cstdint>

namespace accel {

enum class LogLevel : int32_t { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40, kOff = 100 };

}  // namespace accel
