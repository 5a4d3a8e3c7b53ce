// Section 14: trackers.
#include "accel.h"
#include "base/error.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_init_trackers(accel_state_t* /*state*/, const char* /*project_name*/,
                                                  const accel_value_t* /*config*/, const accel_value_t* /*init_kwargs*/,
                                                  const accel_tracking_options_t* /*options*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log(accel_state_t* /*state*/, const accel_value_t* /*values*/, int64_t /*step*/,
                                        const accel_value_t* /*log_kwargs*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_scalars(accel_state_t* /*state*/, const char* const* /*names*/,
                                                const double* /*values*/, size_t /*n_values*/, int64_t /*step*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_images(accel_state_t* /*state*/, const accel_value_t* /*images*/,
                                               int32_t /*channels_first*/, int64_t /*step*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_table(accel_state_t* /*state*/, const char* /*name*/,
                                              const accel_value_t* /*columns*/, const accel_value_t* /*rows*/,
                                              int64_t /*step*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_figure(accel_state_t* /*state*/, const char* /*name*/, const void* /*bytes*/,
                                               size_t /*n_bytes*/, int64_t /*step*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_log_artifact(accel_state_t* /*state*/, const char* /*path*/, const char* /*name*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_flush_trackers(accel_state_t* /*state*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_finish_trackers(accel_state_t* /*state*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_get_tracker(accel_state_t* /*state*/, const char* /*name*/,
                                                accel_tracker_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_trackers(accel_state_t* /*state*/, accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_available_trackers(accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_tracker_create(const char* /*name*/, const accel_tracker_options_t* /*options*/,
                                                   accel_tracker_fn /*tracker*/, void* /*user_data*/,
                                                   accel_destroy_fn /*destroy*/, accel_tracker_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_tracker_t* accel_tracker_retain(accel_tracker_t* /*tracker*/) { return nullptr; }

ACCEL_FUNCTION void accel_tracker_release(accel_tracker_t* /*tracker*/) {}

ACCEL_FUNCTION accel_status_t accel_add_tracker(accel_state_t* /*state*/, accel_tracker_t* /*tracker*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION const char* accel_tracker_name(const accel_tracker_t* /*tracker*/) { return nullptr; }

ACCEL_FUNCTION accel_status_t accel_tracker_location(const accel_tracker_t* /*tracker*/, accel_buffer_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_tracker_log(accel_tracker_t* /*tracker*/, const accel_value_t* /*values*/,
                                                int64_t /*step*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

}  // namespace accel::capi
