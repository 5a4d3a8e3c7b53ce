// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <atomic>
#include <memory>
#include <mutex>

#include "base/log_variable.hpp"

namespace accel {
namespace {

struct Sink {
  LogCallback callback;
  void* user_data;
  Destroy destroy;
  ~Sink() {
    if (destroy != nullptr) destroy(user_data);
  }
};

struct Logger {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;
  std::atomic<int32_t> level{static_cast<int32_t>(LogLevel::kWarning)};
  std::atomic<LogTap> tap{nullptr};
};

// Never destroyed: threads may log while the process exits.
Logger& logger() {
  alignas(Logger) static unsigned char storage[sizeof(Logger)];
  static Logger* const instance = ::new (storage) Logger;
  return *instance;
}

bool application_takes(LogLevel level) {
  return static_cast<int32_t>(level) >= logger().level.load(std::memory_order_relaxed);
}

std::shared_ptr<const Sink> current_sink() {
  Logger& state = logger();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.sink;
}

}  // namespace

void set_log_callback(LogCallback callback, void* user_data, Destroy destroy) {
  std::shared_ptr<const Sink> next(new Sink{callback, user_data, destroy});
  Logger& state = logger();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.sink.swap(next);
  }
}

void set_log_tap(LogTap tap) { logger().tap.store(tap, std::memory_order_release); }

void set_log_level(LogLevel level) { logger().level.store(static_cast<int32_t>(level), std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return application_takes(level) || log_variable_takes(level); }

void log_message(LogLevel level, const std::string& message) {
  log_to_variable(level, message);
  if (!application_takes(level)) return;
  if (const LogTap tap = logger().tap.load(std::memory_order_acquire)) tap(level, message);
  const auto sink = current_sink();
  if (sink && sink->callback != nullptr) sink->callback(static_cast<int32_t>(level), message.c_str(), sink->user_data);
}

}  // namespace accel
