// SPDX-License-Identifier: Apache-2.0
// Step reports: where the time of training steps goes, of one rank and of all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "logging/process_memory.hpp"
#include "trace/step_times.hpp"
#include "track/throughput.hpp"

namespace accel::track {

struct RankReport {
  StepTimes::Report times;
  ProcessMemory process;
  int64_t cpu_in_use = 0, cpu_most_in_use = 0;        // by large tensors, where their memory is ours
  int64_t device_in_use = 0, device_most_in_use = 0;  // of an accelerator
  Throughput::Report throughput;

  double computing() const;  // seconds of a step in which other ranks are not waited for
};

// The JSON has the form of accel_step_report().
Json to_json(const RankReport& report);
// kTypeMismatch for another value.
RankReport rank_report(const Json& report);

struct RankOfJob {
  int64_t rank;
  std::string host;
  RankReport report;
};
Json to_json(const RankOfJob& rank);
RankOfJob rank_of_job(const Json& rank);

struct JobReport {
  explicit JobReport(std::vector<RankOfJob> ranks);

  std::vector<RankOfJob> ranks;
  // The straggler: of ranks that wait for each other all steps take equally long, so it is the one that computes
  // longest.
  std::optional<int64_t> slowest_rank;
  std::optional<double> slowdown;  // its computing time, by the median of all, the smaller one of two
  std::optional<double> tokens_per_second;
};

// The JSON has the form of accel_step_report_of_ranks().
Json to_json(const JobReport& report);
// For trackers: {"ranks": [{"rank", "host", "seconds", "memory", ...}], "slowest_rank"}.
Json tracked_report(const JobReport& report);

// A table, of either form of the JSON.
std::string step_report_table(const Json& report);

}  // namespace accel::track
