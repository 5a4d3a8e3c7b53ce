// SPDX-License-Identifier: Apache-2.0
// The rate of a count: it follows changes, and one slow step does not make it jump.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace accel::track {

class ProgressRate {
 public:
  using Clock = std::chrono::steady_clock;

  ProgressRate(int64_t count, Clock::time_point now) : looked_(now), seen_(count) {}

  void look(int64_t count, Clock::time_point now);
  // Counts from another number. The rate stays.
  void restart(int64_t count, Clock::time_point now);
  Clock::time_point last_look() const { return looked_; }
  // A second, of late.
  std::optional<double> rate() const;

 private:
  // The counts and seconds between two looks, which decay.
  Clock::time_point looked_;
  int64_t seen_;
  double recent_count_ = 0, recent_seconds_ = 0;
};

}  // namespace accel::track
