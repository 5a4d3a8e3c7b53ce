// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/step_measurement.hpp"

#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "accelerator/ranks.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "os/host_name.hpp"
#include "tensor/device/device_work.hpp"
#include "track/live_metrics_server.hpp"
#include "track/throughput.hpp"
#include "track/trackers.hpp"

namespace accel::accelerator {
StepMeasurement::StepMeasurement(const state::State& state)
    : state_(state),
      trackers_(std::make_unique<track::Trackers>()),
      throughput_(std::make_unique<track::Throughput>()) {}

StepMeasurement::~StepMeasurement() = default;

track::RankOfJob StepMeasurement::own_report(bool reset) {
  const int rank = state_.communicator()->rank();
  return {rank, host_name(), report(reset)};
}

void StepMeasurement::refresh_live_metrics() {
  if (live_ != nullptr && live_->metrics().wants_report()) live_->metrics().set_report(own_report(false));
}

track::RankReport StepMeasurement::report(bool reset) {
  StepTimes& times = *state_.communicator()->step_times();
  track::RankReport report;
  report.times = times.report();
  report.throughput = throughput_->report(report.times);
  report.process = track::process_memory();
  const kernels::AllocatorStatistics cpu = kernels::cpu_memory_statistics();
  report.cpu_in_use = static_cast<int64_t>(cpu.in_use);
  report.cpu_most_in_use = static_cast<int64_t>(cpu.peak_in_use);
  if (const c10::Device device = state_.device(); !device.is_cpu()) {
    const tensor::DeviceMemory memory = tensor::device_memory(device);
    report.device_in_use = memory.allocated;
    report.device_most_in_use = memory.peak_allocated;
  }
  if (reset) {
    times.reset();
    throughput_->reset();
  }
  return report;
}

track::JobReport StepMeasurement::report_of_ranks(bool reset) {
  const track::RankOfJob own = own_report(reset);
  const checkpoint::Ranks ranks = ranks_of(state_, /*each_host=*/false);
  std::vector<track::RankOfJob> all;
  if (ranks.size == 1) {
    all.push_back(own);
  } else {
    for (const std::string& text : ranks.all_gather(print_json(track::to_json(own))))
      all.push_back(track::rank_of_job(parse_json(text, "the step report of another rank")));
  }
  track::JobReport job(std::move(all));
  trackers_->log_step_report(track::tracked_report(job));
  if (live_ != nullptr) live_->metrics().set_report(job);
  return job;
}

void StepMeasurement::count_tokens(int64_t n_tokens) {
  throughput_->count(n_tokens);
  refresh_live_metrics();
}

int StepMeasurement::serve_metrics(const ServeMetricsSettings& settings) {
  if (live_ == nullptr)
    live_ = std::make_unique<track::LiveMetricsServer>(
        state_.communicator()->rank(), [trackers = trackers_.get()] { return trackers->latest_scalars(); }, settings);
  else
    live_->move(settings);
  refresh_live_metrics();
  return live_->port();
}

void StepMeasurement::note_log(int64_t step_report_interval) {
  refresh_live_metrics();
  if (step_report_interval <= 0) return;
  const StepTimes::Report times = state_.communicator()->step_times()->report();
  if (!throughput_->is_report_due(times, step_report_interval)) return;
  trackers_->log_step_report(track::tracked_report(track::JobReport({own_report(false)})));
}

}  // namespace accel::accelerator
