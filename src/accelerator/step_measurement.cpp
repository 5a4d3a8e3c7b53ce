#include "accelerator/step_measurement.hpp"

#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/ranks.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "os/host_name.hpp"
#include "tensor/device/device_work.hpp"
#include "track/live_metrics_server.hpp"
#include "track/throughput.hpp"
#include "track/trackers.hpp"

namespace accel::accelerator {
namespace {

track::RankOfJob own_report(Accelerator& accelerator, bool reset) {
  const int rank = accelerator.state().communicator()->rank();
  return {rank, host_name(), step_report(accelerator, reset)};
}

void refresh_live_metrics(Accelerator& accelerator) {
  const auto& live = accelerator.live_metrics();
  if (live != nullptr && live->metrics().wants_report()) live->metrics().set_report(own_report(accelerator, false));
}

}  // namespace

track::RankReport step_report(Accelerator& accelerator, bool reset) {
  StepTimes& times = *accelerator.state().communicator()->step_times();
  track::RankReport report;
  report.times = times.report();
  report.throughput = accelerator.throughput().report(report.times);
  report.process = track::process_memory();
  const kernels::AllocatorStatistics cpu = kernels::cpu_memory_statistics();
  report.cpu_in_use = static_cast<int64_t>(cpu.in_use);
  report.cpu_most_in_use = static_cast<int64_t>(cpu.peak_in_use);
  if (const c10::Device device = accelerator.state().device(); !device.is_cpu()) {
    const tensor::DeviceMemory memory = tensor::device_memory(device);
    report.device_in_use = memory.allocated;
    report.device_most_in_use = memory.peak_allocated;
  }
  if (reset) {
    times.reset();
    accelerator.throughput().reset();
  }
  return report;
}

track::JobReport step_report_of_ranks(Accelerator& accelerator, bool reset) {
  const track::RankOfJob own = own_report(accelerator, reset);
  const checkpoint::Ranks ranks = ranks_of(accelerator.state(), /*each_host=*/false);
  std::vector<track::RankOfJob> all;
  if (ranks.size == 1) {
    all.push_back(own);
  } else {
    for (const std::string& text : ranks.all_gather(print_json(track::to_json(own))))
      all.push_back(track::rank_of_job(parse_json(text, "the step report of another rank")));
  }
  track::JobReport job(std::move(all));
  accelerator.trackers().log_step_report(track::tracked_report(job));
  if (accelerator.live_metrics() != nullptr) accelerator.live_metrics()->metrics().set_report(job);
  return job;
}

void count_tokens(Accelerator& accelerator, int64_t n_tokens) {
  accelerator.throughput().count(n_tokens);
  refresh_live_metrics(accelerator);
}

int serve_metrics(Accelerator& accelerator, const ServeMetricsSettings& settings) {
  auto& live = accelerator.live_metrics();
  if (live == nullptr)
    live = std::make_shared<track::LiveMetricsServer>(
        accelerator.state().communicator()->rank(),
        [&trackers = accelerator.trackers()] { return trackers.latest_scalars(); }, settings);
  else
    live->move(settings);
  refresh_live_metrics(accelerator);
  return live->port();
}

void note_log(Accelerator& accelerator, int64_t step_report_interval) {
  refresh_live_metrics(accelerator);
  if (step_report_interval <= 0) return;
  const StepTimes::Report times = accelerator.state().communicator()->step_times()->report();
  if (!accelerator.throughput().is_report_due(times, step_report_interval)) return;
  accelerator.trackers().log_step_report(track::tracked_report(track::JobReport({own_report(accelerator, false)})));
}

}  // namespace accel::accelerator
