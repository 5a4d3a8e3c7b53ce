// SPDX-License-Identifier: Apache-2.0
// Live metrics: the latest step report and scalars of a rank, as text for Prometheus.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "track/step_report.hpp"

namespace accel::track {

// The loop's thread tells, a server's thread reads.
class LiveMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  using Scalars = std::map<std::string, double, std::less<>>;

  // `scalars` returns what was logged last; the server's thread calls it.
  LiveMetrics(int rank, std::function<Scalars()> scalars) : rank_(rank), scalars_(std::move(scalars)) {}

  // Whether the report is so old that it is worth some microseconds to make another one.
  bool wants_report(Clock::time_point now = Clock::now());
  void set_report(const RankOfJob& rank);
  void set_report(const JobReport& job);

  // Text format 0.0.4.
  std::string text() const;

 private:
  const int rank_;
  const std::function<Scalars()> scalars_;
  Clock::time_point due_{};  // of the loop's thread
  mutable std::mutex mutex_;
  std::map<int64_t, RankReport> ranks_;
  std::optional<int64_t> slowest_rank_;
  std::optional<double> slowdown_;
};

}  // namespace accel::track
