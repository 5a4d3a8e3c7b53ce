// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <cstddef>
#include <new>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"

namespace accel::capi {
namespace {

class LogWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { log(LogLevel::kWarning, warning.msg()); }
};

}  // namespace

c10::WarningHandler* log_warnings() noexcept {
  // Never destroyed, for threads may warn while the process exits, and not allocated, which could fail here.
  alignas(LogWarnings) static std::byte memory[sizeof(LogWarnings)];
  static LogWarnings* const handler = new (memory) LogWarnings();
  return handler;
}

ACCEL_FUNCTION accel_status_t accel_set_log_callback(accel_log_fn callback, void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] { set_log_callback(callback, user_data, destroy); });
}

ACCEL_FUNCTION accel_status_t accel_set_log_level(int32_t level) {
  return guarded(__func__, [&] {
    switch (level) {
      case ACCEL_LOG_DEBUG:
      case ACCEL_LOG_INFO:
      case ACCEL_LOG_WARNING:
      case ACCEL_LOG_ERROR:
      case ACCEL_LOG_OFF:
        set_log_level(static_cast<LogLevel>(level));
        return ACCEL_OK;
      default:
        fail(Status::kInvalidArgument, "level is ", level, "; expected 10, 20, 30, 40 or 100 (ACCEL_LOG_*)");
    }
  });
}

}  // namespace accel::capi
