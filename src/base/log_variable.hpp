// SPDX-License-Identifier: Apache-2.0
// The variable ACCEL_LOG, by which the user of a program sees the library's log messages: "level" for standard error,
// "level:file" for a file, to which all processes that have the variable add their lines.
#pragma once

#include <string>

#include "base/log_level.hpp"

namespace accel {

// Whether the variable, which is read once, asks for messages of this level.
bool log_variable_takes(LogLevel level) noexcept;

// Writes a message where the variable says, as one line in one write().
void log_to_variable(LogLevel level, const std::string& message) noexcept;

// The rank that lines name from now on; none once the process has several ranks.
void set_log_rank(int64_t rank) noexcept;

}  // namespace accel
