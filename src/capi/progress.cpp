// Section 14: progress bars.
#include "accel.h"
#include "base/error.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_progress_begin(accel_state_t* /*state*/, const char* /*label*/, int64_t /*total*/,
                                                   const accel_progress_options_t* /*options*/,
                                                   accel_progress_fn /*show*/, void* /*user_data*/,
                                                   accel_destroy_fn /*destroy*/, accel_progress_bar_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_progress_of_dataloader(accel_state_t* /*state*/, const char* /*label*/,
                                                           accel_dataloader_t* /*loader*/,
                                                           const accel_progress_options_t* /*options*/,
                                                           accel_progress_bar_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_progress_bar_t* accel_progress_bar_retain(accel_progress_bar_t* /*bar*/) { return nullptr; }

ACCEL_FUNCTION void accel_progress_bar_release(accel_progress_bar_t* /*bar*/) {}

ACCEL_FUNCTION accel_status_t accel_progress_update(accel_progress_bar_t* /*bar*/, int64_t /*count*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_progress_set_values(accel_progress_bar_t* /*bar*/,
                                                        const accel_value_t* /*values*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_progress_report(const accel_progress_bar_t* /*bar*/, accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_progress_end(accel_progress_bar_t* /*bar*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

}  // namespace accel::capi
