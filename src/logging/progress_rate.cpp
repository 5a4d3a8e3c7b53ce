// SPDX-License-Identifier: Apache-2.0
#include "logging/progress_rate.hpp"

#include <cmath>

namespace accel::track {
namespace {

constexpr double kRateSeconds = 10;

}  // namespace

void ProgressRate::look(int64_t count, Clock::time_point now) {
  if (now <= looked_) return;
  const double passed = std::chrono::duration<double>(now - looked_).count();
  const double left = std::exp(-passed / kRateSeconds);
  recent_count_ = recent_count_ * left + static_cast<double>(count - seen_);
  recent_seconds_ = recent_seconds_ * left + passed;
  restart(count, now);
}

void ProgressRate::restart(int64_t count, Clock::time_point now) {
  looked_ = now;
  seen_ = count;
}

std::optional<double> ProgressRate::rate() const {
  if (recent_seconds_ <= 0 || recent_count_ <= 0) return std::nullopt;
  return recent_count_ / recent_seconds_;
}

}  // namespace accel::track
