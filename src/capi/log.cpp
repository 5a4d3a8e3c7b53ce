#include "base/log.hpp"

#include <memory>

#include "accel.h"
#include "base/error.hpp"
#include "capi/guard.hpp"

using namespace accel::capi;

namespace {

class LogWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { accel::log(accel::LogLevel::kWarning, warning.msg()); }
};

}  // namespace

c10::WarningHandler* accel::capi::log_warnings() noexcept {
  static LogWarnings* const handler =
      std::make_unique<LogWarnings>().release();  // threads may warn while the process exits
  return handler;
}

accel_status_t accel_set_log_callback(accel_log_fn callback, void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    accel::set_log_callback(callback, user_data, destroy);
    return ACCEL_OK;
  });
}

accel_status_t accel_set_log_level(int32_t level) {
  return guarded(__func__, [&] {
    switch (level) {
      case ACCEL_LOG_DEBUG:
      case ACCEL_LOG_INFO:
      case ACCEL_LOG_WARNING:
      case ACCEL_LOG_ERROR:
      case ACCEL_LOG_OFF:
        accel::set_log_level(static_cast<accel::LogLevel>(level));
        return ACCEL_OK;
      default:
        accel::fail(accel::Status::kInvalidArgument, "level is ", level,
                    "; expected 10, 20, 30, 40 or 100 (ACCEL_LOG_*)");
    }
  });
}
