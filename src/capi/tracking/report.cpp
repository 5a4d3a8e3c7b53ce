// SPDX-License-Identifier: Apache-2.0
// Section 14: reports on the training loop.
#include "capi/generated/options/report.hpp"
#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/steps/step_measurement.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/value.hpp"
#include "json/json.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"
#include "track/throughput.hpp"

namespace accel::capi {
namespace {

accel_value_t report_value(const Json& report) { return from_ivalue(tree::from_json(report, "report")); }

}  // namespace

ACCEL_FUNCTION accel_status_t accel_step_report(accel_state_t* state, int32_t reset, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    return report_value(track::to_json(accelerator.measurement().report(read_flag(reset, "reset"))));
  });
}

ACCEL_FUNCTION accel_status_t accel_step_report_of_ranks(accel_state_t* state, int32_t reset, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    return report_value(track::to_json(accelerator.measurement().report_of_ranks(read_flag(reset, "reset"))));
  });
}

ACCEL_FUNCTION accel_status_t accel_step_report_table(const accel_value_t* report, accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    const c10::IValue value = to_ivalue(*check_pointer(report, "report"), "report");
    return new_buffer(track::step_report_table(tree::json_of(value)));
  });
}

ACCEL_FUNCTION accel_status_t accel_count_tokens(accel_state_t* state, int64_t n_tokens) {
  return guarded(__func__, [&] { accelerator_of(state)->measurement().count_tokens(n_tokens); });
}

ACCEL_FUNCTION accel_status_t accel_set_model_flops(accel_state_t* state, double flops_per_token,
                                                    double peak_flops_per_second) {
  return guarded(__func__, [&] {
    accelerator_of(state)->measurement().throughput().set_model(flops_per_token, peak_flops_per_second);
  });
}

ACCEL_FUNCTION accel_status_t accel_serve_metrics(accel_state_t* state, const accel_serve_metrics_options_t* options,
                                                  int32_t* out_port) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    const ServeMetricsSettings settings = read_settings(options, "options");
    int32_t& port = *check_pointer(out_port, "out_port");  // before a server is there
    port = accelerator.measurement().serve_metrics(settings);
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

}  // namespace accel::capi
