// Section 14: reports on the training loop.
#include <numeric>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/step_times.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/value.hpp"
#include "kernels/cpu_allocator.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

c10::IValue by_name(const StepTimes::Seconds& seconds) {
  auto map = tree::new_map();
  for (size_t part = 0; part < kStepParts; part++)
    map.insert(step_part_name(static_cast<StepPart>(part)), seconds[part]);
  map.insert("total", std::accumulate(seconds.begin(), seconds.end(), 0.0));
  return map;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_step_report(accel_state_t* state, int32_t reset, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    StepTimes& times = *check(state, "state").accelerator->state().step_times();
    const bool resets = read_flag(reset, "reset");
    const StepTimes::Report report = times.report();
    if (resets) times.reset();
    auto map = tree::new_map();
    map.insert("steps", report.steps);
    map.insert("latest", by_name(report.latest));
    map.insert("mean", by_name(report.mean));
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_memory_report(int32_t reset_peak, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const bool resets = read_flag(reset_peak, "reset_peak");
    const kernels::AllocatorStatistics statistics = kernels::cpu_memory_statistics();
    if (resets) kernels::reset_cpu_memory_peak();
    auto cpu = tree::new_map();
    cpu.insert("in_use", static_cast<int64_t>(statistics.in_use));
    cpu.insert("most_in_use", static_cast<int64_t>(statistics.peak_in_use));
    cpu.insert("kept", static_cast<int64_t>(statistics.cached));
    cpu.insert("reused", static_cast<int64_t>(statistics.reused));
    cpu.insert("mapped", static_cast<int64_t>(statistics.mapped));
    auto map = tree::new_map();
    map.insert("cpu", cpu);
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_step_report_of_ranks(accel_state_t* /*state*/, int32_t /*reset*/,
                                                         accel_value_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_step_report_table(const accel_value_t* /*report*/, accel_buffer_t* /*out*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_count_tokens(accel_state_t* /*state*/, int64_t /*n_tokens*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_set_model_flops(accel_state_t* /*state*/, double /*flops_per_token*/,
                                                    double /*peak_flops_per_second*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

ACCEL_FUNCTION accel_status_t accel_serve_metrics(accel_state_t* /*state*/,
                                                  const accel_serve_metrics_options_t* /*options*/,
                                                  int32_t* /*out_port*/) {
  return guarded(__func__, [] { fail(Status::kUnsupported, "not there yet"); });
}

}  // namespace accel::capi
