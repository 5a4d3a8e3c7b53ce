// The variable ACCEL_LOG, by which the user of a program sees the library's log messages: "level" for standard error,
// "level:file" for a file.
#pragma once

#include <string>

namespace accel {

// Writes a message where the variable says, if it asks for messages of this level.
void log_to_variable(int level, const std::string& message) noexcept;

}  // namespace accel
