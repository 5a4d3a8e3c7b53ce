// SPDX-License-Identifier: Apache-2.0
#include "logging/logger.hpp"

#include <exception>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text_check.hpp"
#include "logging/log_sink.hpp"

namespace accel::track {
namespace {

constexpr char kLevelVariable[] = "ACCELERATE_LOG_LEVEL";

int32_t level_of_environment() {
  const auto name = environment_text(kLevelVariable);
  return name ? parse_log_level(*name, kLevelVariable) : static_cast<int32_t>(LogLevel::kWarning);
}

}  // namespace

Logger::Logger(const std::string& name, std::optional<int32_t> level, Place place, Callback callback)
    : name_(repaired_text(name)),
      level_(level ? *level : level_of_environment()),
      place_(std::move(place)),
      callback_(std::move(callback)) {}

void Logger::write(int32_t level, const std::string& given, bool names_rank) const {
  const std::string message = repaired_text(given);
  if (callback_)
    callback_(level, name_.c_str(), (names_rank ? text("[RANK ", place_.rank, "] ", message) : message).c_str());
  write_to_sinks({level, place_.rank, name_, message});
}

void Logger::log(int32_t level, const std::string& message, LogRanks ranks) {
  if (ranks != LogRanks::kInOrder) {
    if (is_enabled(level) && (ranks == LogRanks::kAllProcesses || place_.rank == 0))
      write(level, message, ranks == LogRanks::kAllProcesses);
    return;
  }
  // A rank that cannot write goes on with the others, which wait for it.
  std::exception_ptr failure;
  for (int turn = 0; turn < place_.num_ranks; turn++) {
    if (turn == place_.rank && is_enabled(level)) try {
        write(level, message, /*names_rank=*/true);
      } catch (...) {
        failure = std::current_exception();
      }
    if (place_.num_ranks > 1) place_.barrier();
  }
  if (failure) std::rethrow_exception(failure);
}

void Logger::warn_once(const std::string& message, LogRanks ranks) {
  require(ranks != LogRanks::kInOrder, Status::kInvalidArgument,
          "ranks is IN_ORDER, in which all ranks take part each time; expected MAIN_PROCESS or ALL_PROCESSES");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!warned_.insert(message).second) return;
  }
  log(static_cast<int32_t>(LogLevel::kWarning), message, ranks);
}

}  // namespace accel::track
