// Section 14: loggers.
#include "accel.h"
#include "base/error.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_log_sink_add(accel_state_t* /*state*/, const accel_log_sink_options_t* /*options*/,
                                                 int64_t* /*out_sink*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_sink_remove(int64_t /*sink*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_logger_create(accel_state_t* /*state*/, const char* /*name*/, int32_t /*level*/,
                                                  accel_logger_fn /*callback*/, void* /*user_data*/,
                                                  accel_destroy_fn /*destroy*/, accel_logger_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_logger_t* accel_logger_retain(accel_logger_t* /*logger*/) { return nullptr; }

ACCEL_FUNCTION void accel_logger_release(accel_logger_t* /*logger*/) {}

ACCEL_FUNCTION int32_t accel_logger_enabled(const accel_logger_t* /*logger*/, int32_t /*level*/) { return 0; }

ACCEL_FUNCTION accel_status_t accel_logger_log(accel_logger_t* /*logger*/, int32_t /*level*/, const char* /*message*/,
                                               accel_log_ranks_t /*ranks*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_logger_warning_once(accel_logger_t* /*logger*/, const char* /*message*/,
                                                        accel_log_ranks_t /*ranks*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

}  // namespace accel::capi
