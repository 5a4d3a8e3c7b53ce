// SPDX-License-Identifier: Apache-2.0
#include "base/log_variable.hpp"

#include <fcntl.h>
#include <strings.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/utc_time.hpp"
#include "base/write_whole.hpp"

namespace accel {
namespace {

constexpr const char* kVariable = "ACCEL_LOG";

struct LevelName {
  const char* name;
  LogLevel level;
};
constexpr LevelName kLevels[] = {{"debug", LogLevel::kDebug},
                                 {"info", LogLevel::kInfo},
                                 {"warning", LogLevel::kWarning},
                                 {"error", LogLevel::kError},
                                 {"off", LogLevel::kOff}};

constexpr int64_t kUnknown = -1, kSeveral = -2;
std::atomic<int64_t> known_rank{kUnknown};

// The file stays open until the process ends, for threads may log until then.
struct Target {
  LogLevel level = LogLevel::kOff;
  int descriptor = STDERR_FILENO;
};

// The user of the program has asked for this, who would see nothing of an error.
void complain(const std::string& sentence) {
  write_whole(STDERR_FILENO, text("accel: ", kVariable, " ", sentence, "; nothing is logged\n"));
}

Target read_variable() {
  const auto value = environment_text(kVariable);
  if (!value) return {};
  const size_t colon = value->find(':');
  const std::string word = value->substr(0, colon);
  const auto* const named = std::find_if(std::begin(kLevels), std::end(kLevels), [&word](const LevelName& known) {
    return strcasecmp(known.name, word.c_str()) == 0;
  });
  if (named == std::end(kLevels) || (colon != std::string::npos && colon + 1 == value->size())) {
    complain(
        text("is '", *value, "'; expected debug, info, warning, error or off, or one of them, a colon and a file"));
    return {};
  }
  if (colon == std::string::npos || named->level == LogLevel::kOff) return {named->level, STDERR_FILENO};
  const std::string path = value->substr(colon + 1);
  // A pipe without a reader is an error instead of a wait.
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (file >= 0) return {named->level, file};
  complain(text("names the file '", path, "', which cannot be opened: ", std::strerror(errno),
                "; expected one that can be written"));
  return {};
}

Target target() noexcept {
  static const Target read = []() noexcept -> Target {
    try {
      return read_variable();
    } catch (const std::exception&) {  // no memory for a message
      return {};
    }
  }();
  return read;
}

const char* name_of(LogLevel level) {
  for (const LevelName& known : kLevels)
    if (level <= known.level) return known.name;
  return "error";
}

}  // namespace

bool log_variable_takes(LogLevel level) noexcept { return level >= target().level && level < LogLevel::kOff; }

void log_to_variable(LogLevel level, const std::string& message) noexcept try {
  if (!log_variable_takes(level)) return;
  timeval now{};
  gettimeofday(&now, nullptr);
  const int64_t rank = known_rank.load(std::memory_order_relaxed);
  std::string line =
      text("accel ", utc_time(now), " ", name_of(level), rank >= 0 ? text(" rank ", rank) : "", ": ", message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  write_whole(target().descriptor, line);
} catch (const std::exception&) {  // no memory for the line
}

void set_log_rank(int64_t rank) noexcept {
  int64_t before = kUnknown;
  if (known_rank.compare_exchange_strong(before, rank) || before == rank) return;
  known_rank.store(kSeveral);
}

}  // namespace accel
