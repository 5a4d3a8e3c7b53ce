// SPDX-License-Identifier: Apache-2.0
// Step measurement: the reports of a rank's steps, and who gets them: the application, the trackers of the run, a
// server of live metrics.
#pragma once

#include <cstdint>
#include <memory>

#include "config/generated/settings/report/serve_metrics.hpp"
#include "state/state.hpp"
#include "track/step_report.hpp"

namespace accel::track {
class LiveMetricsServer;
class Throughput;
class Trackers;
}  // namespace accel::track

namespace accel::accelerator {

class StepMeasurement {
 public:
  // `state` is that of the accelerator that has this.
  explicit StepMeasurement(const state::State& state);
  ~StepMeasurement();
  StepMeasurement(const StepMeasurement&) = delete;
  StepMeasurement& operator=(const StepMeasurement&) = delete;

  // The trackers of the run; each state and group has its own.
  track::Trackers& trackers() { return *trackers_; }
  track::Throughput& throughput() { return *throughput_; }

  // The report of this rank. For the loop's thread.
  track::RankReport report(bool reset);
  // Collective: of all ranks, the same on each.
  track::JobReport report_of_ranks(bool reset);
  // Counts tokens of the loop.
  void count_tokens(int64_t n_tokens);
  // Returns the port.
  int serve_metrics(const ServeMetricsSettings& settings);
  // After each log. Costs nothing without a server and without an interval, in steps, at which trackers get the report
  // of this rank.
  void note_log(int64_t step_report_interval);

 private:
  track::RankOfJob own_report(bool reset);
  void refresh_live_metrics();

  const state::State& state_;
  const std::unique_ptr<track::Trackers> trackers_;
  const std::unique_ptr<track::Throughput> throughput_;
  std::unique_ptr<track::LiveMetricsServer> live_;  // null without one
};

}  // namespace accel::accelerator
