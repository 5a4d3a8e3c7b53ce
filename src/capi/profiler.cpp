// Section 14: the profiler.
#include "accel.h"
#include "base/error.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_profile_begin(accel_state_t* /*state*/, const accel_profile_options_t* /*options*/,
                                                  accel_trace_ready_fn /*on_trace_ready*/, void* /*user_data*/,
                                                  accel_destroy_fn /*destroy*/, accel_profile_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_profile_t* accel_profile_retain(accel_profile_t* /*profile*/) { return nullptr; }

ACCEL_FUNCTION void accel_profile_release(accel_profile_t* /*profile*/) {}

ACCEL_FUNCTION accel_status_t accel_profile_step(accel_profile_t* /*profile*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION int64_t accel_profile_step_number(const accel_profile_t* /*profile*/) { return 0; }

ACCEL_FUNCTION accel_status_t accel_profile_schedule(const accel_profile_options_t* /*options*/, int64_t /*step*/,
                                                     accel_profile_action_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_profile_export_trace(accel_profile_t* /*profile*/, const char* /*path*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_profile_key_averages(accel_profile_t* /*profile*/, int32_t /*group_by_shapes*/,
                                                         accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_profile_table(const accel_value_t* /*averages*/, const char* /*sort_by*/,
                                                  int64_t /*row_limit*/, accel_buffer_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_profile_memory_timeline(accel_profile_t* /*profile*/, accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_profile_end(accel_profile_t* /*profile*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_span_begin(const char* /*name*/, accel_scope_t** /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_merge_traces(const char* const* /*paths*/, size_t /*n_paths*/,
                                                 const char* /*path*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

}  // namespace accel::capi
