// SPDX-License-Identifier: Apache-2.0
// Section 14: the profiler.
#include "profile/profiler.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/profiler.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/value.hpp"
#include "json/json.hpp"
#include "profile/trace_file.hpp"
#include "tensor/tree_json.hpp"
#include "trace/averages_table.hpp"
#include "trace/profile_schedule.hpp"
#include "trace/span.hpp"

namespace accel::capi {
namespace {

static_assert(static_cast<int32_t>(track::ProfileAction::kNone) == ACCEL_PROFILE_NONE &&
              static_cast<int32_t>(track::ProfileAction::kWarmup) == ACCEL_PROFILE_WARMUP &&
              static_cast<int32_t>(track::ProfileAction::kRecord) == ACCEL_PROFILE_RECORD &&
              static_cast<int32_t>(track::ProfileAction::kRecordAndSave) == ACCEL_PROFILE_RECORD_AND_SAVE);

// Kept by the call, because on_trace_ready may release the handle.
std::shared_ptr<profile::Profiler> profiler_of(const accel_profile_t* handle) {
  return check(handle, "profile").profiler;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_profile_begin(accel_state_t* state, const accel_profile_options_t* options,
                                                  accel_trace_ready_fn on_trace_ready, void* user_data,
                                                  accel_destroy_fn destroy, accel_profile_t** out) {
  return guarded(__func__, [&] {
    const Callback<accel_trace_ready_fn> callback(on_trace_ready, user_data, destroy);
    const state::State& engine = accelerator_of(state)->state();
    check_pointer(out, "out");
    auto profile = std::make_unique<accel_profile>(std::make_shared<profile::Profiler>(
        read_settings(options, "options"), engine.communicator(), engine.device().type()));
    if (on_trace_ready != nullptr)
      profile->profiler->set_trace_ready(
          [callback, handle = profile.get()] { callback.checked("on_trace_ready", handle); });
    *out = profile.release();
  });
}

ACCEL_FUNCTION accel_profile_t* accel_profile_retain(accel_profile_t* profile) {
  return retain_handle(__func__, profile, "profile");
}

ACCEL_FUNCTION void accel_profile_release(accel_profile_t* profile) { release_handle(profile); }

ACCEL_FUNCTION accel_status_t accel_profile_step(accel_profile_t* profile) {
  return guarded(__func__, [&] { profiler_of(profile)->step(); });
}

ACCEL_FUNCTION int64_t accel_profile_step_number(const accel_profile_t* profile) {
  return guarded_value<int64_t>(__func__, -1, [&] { return check(profile, "profile").profiler->step_number(); });
}

ACCEL_FUNCTION accel_status_t accel_profile_schedule(const accel_profile_options_t* options, int64_t step,
                                                     accel_profile_action_t* out) {
  return guarded(__func__, out, [&] {
    const auto settings = read_settings(check_pointer(options, "options"), "options");
    require(settings.active.value.has_value(), Status::kInvalidArgument,
            "options.active is unset; expected a schedule, with active at least 1");
    require(step >= 0, Status::kInvalidArgument, "step is ", step, "; expected 0 or more");
    return static_cast<accel_profile_action_t>(track::profile_action(settings, step));
  });
}

ACCEL_FUNCTION accel_status_t accel_profile_export_trace(accel_profile_t* profile, const char* path) {
  return guarded(__func__, [&] {
    const auto profiler = profiler_of(profile);
    profiler->export_trace(check_pointer(path, "path"));
  });
}

ACCEL_FUNCTION accel_status_t accel_profile_key_averages(accel_profile_t* profile, int32_t group_by_shapes,
                                                         accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto profiler = profiler_of(profile);
    return from_ivalue(profiler->key_averages(read_flag(group_by_shapes, "group_by_shapes")));
  });
}

ACCEL_FUNCTION accel_status_t accel_profile_table(const accel_value_t* averages, const char* sort_by, int64_t row_limit,
                                                  accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    const c10::IValue value = to_ivalue(*check_pointer(averages, "averages"), "averages");
    check_pointer(sort_by, "sort_by");
    require(row_limit >= 0, Status::kInvalidArgument, "row_limit is ", row_limit, "; expected 0 or more");
    return new_buffer(track::averages_table(tree::json_of(value), sort_by, static_cast<size_t>(row_limit)));
  });
}

ACCEL_FUNCTION accel_status_t accel_profile_memory_timeline(accel_profile_t* profile, accel_value_t* out) {
  return guarded(__func__, out, [&] { return from_ivalue(profiler_of(profile)->memory_timeline()); });
}

ACCEL_FUNCTION accel_status_t accel_profile_end(accel_profile_t* profile) {
  return guarded(__func__, [&] { profiler_of(profile)->end(); });
}

ACCEL_FUNCTION accel_status_t accel_span_begin(const char* name, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(name, "name");
    return open_scope<Span>(SpanKind::kProgram, Spans::are_recorded() ? std::string(name) : std::string());
  });
}

ACCEL_FUNCTION accel_status_t accel_merge_traces(const char* const* paths, size_t n_paths, const char* path) {
  return guarded(__func__, [&] {
    check_array(paths, n_paths, "paths");
    check_pointer(path, "path");
    std::vector<std::string> files;
    for (size_t i = 0; i < n_paths; i++) files.emplace_back(check_pointer(paths[i], "paths"));
    profile::merge_traces(files, path);
  });
}

}  // namespace accel::capi
