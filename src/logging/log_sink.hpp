// SPDX-License-Identifier: Apache-2.0
// Log sinks: where the messages of loggers, and the library's own, are written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "config/generated/settings/logger/log_sink.hpp"

namespace accel::track {

// Its texts are valid UTF-8.
struct LogMessage {
  int32_t level;
  int rank;
  std::string_view logger;
  std::string_view text;
};

// "DEBUG" to "CRITICAL": the name of the highest level that is not above this one.
const char* log_level_name(int32_t level);
// A name of Python's levels in any case; kInvalidArgument, which lists them and names `source`, for another one.
int32_t parse_log_level(const std::string& name, const std::string& source);

// The sinks of the process. Any thread may call. A message is written when write_to_sinks() returns.

// Returns a number for remove_log_sink(). `rank` stands in its path, and in the library's own messages.
int64_t add_log_sink(const LogSinkSettings& settings, int rank);
// False if there is none.
bool remove_log_sink(int64_t sink);
// To all sinks of its level; then throws kIo if one of them cannot be written.
void write_to_sinks(const LogMessage& message);

}  // namespace accel::track
