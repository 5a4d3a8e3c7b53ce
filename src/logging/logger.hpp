// SPDX-License-Identifier: Apache-2.0
// Loggers: messages of the program, with the rank. @accelerate logging
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

namespace accel::track {

enum class LogRanks : int32_t { kMainProcess = 0, kAllProcesses = 1, kInOrder = 2 };

// Any thread may call.
class Logger {
 public:
  using Callback = std::function<void(int32_t level, const char* logger, const char* message)>;

  struct Place {
    int rank = 0;
    int num_ranks = 1;
    std::function<void()> barrier;  // of these ranks
  };

  // Without a level it is that of ACCELERATE_LOG_LEVEL, else WARNING. The callback may be empty.
  Logger(const std::string& name, std::optional<int32_t> level, Place place, Callback callback);

  bool is_enabled(int32_t level) const { return level >= level_; }
  // For kInOrder all ranks call, whatever their levels.
  void log(int32_t level, const std::string& message, LogRanks ranks);
  void warn_once(const std::string& message, LogRanks ranks);

 private:
  void write(int32_t level, const std::string& given, bool names_rank) const;

  const std::string name_;
  const int32_t level_;
  const Place place_;
  const Callback callback_;
  std::mutex mutex_;
  std::unordered_set<std::string> warned_;
};

}  // namespace accel::track
