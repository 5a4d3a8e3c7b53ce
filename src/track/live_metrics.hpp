// Live metrics: the latest step report and scalars of a rank, as text for Prometheus.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "track/step_report.hpp"

namespace accel::track {

// The loop's thread tells, a server's thread reads.
class LiveMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LiveMetrics(int rank) : rank_(rank) {}

  // Whether the report is so old that it is worth some microseconds to make another one.
  bool wants_report(Clock::time_point now = Clock::now());
  void set_report(const RankOfJob& rank);
  void set_report(const JobReport& job);
  void set_scalar(const std::string& name, double value);

  // Text format 0.0.4.
  std::string text() const;

 private:
  const int rank_;
  Clock::time_point due_{};  // of the loop's thread
  mutable std::mutex mutex_;
  std::map<int64_t, RankReport> ranks_;
  std::map<std::string, double> scalars_;
  std::optional<int64_t> slowest_rank_;
  std::optional<double> slowdown_;
};

}  // namespace accel::track
