// SPDX-License-Identifier: Apache-2.0
#include "track/throughput.hpp"

#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace accel::track {

void Throughput::count(int64_t n_tokens) {
  require(n_tokens >= 0, Status::kInvalidArgument, "n_tokens is ", n_tokens, "; expected at least 0");
  counts_ = true;
  tokens_ += n_tokens;
}

void Throughput::set_model(double flops_per_token, double peak_flops_per_second) {
  const auto check = [](double number, const char* name) {
    require(std::isfinite(number) && number > 0, Status::kInvalidArgument, name, " is ", number,
            "; expected a positive number");
  };
  check(flops_per_token, "flops_per_token");
  check(peak_flops_per_second, "peak_flops_per_second");
  flops_per_token_ = flops_per_token;
  peak_flops_per_second_ = peak_flops_per_second;
}

void Throughput::reset() {
  tokens_ = 0;
  steps_at_report_ = 0;  // the steps are counted from here, too
}

Throughput::Report Throughput::report(const StepTimes::Report& times) const {
  Report report;
  const double seconds =
      std::accumulate(times.mean.begin(), times.mean.end(), 0.0) * static_cast<double>(times.steps) + times.open_step;
  if (!counts_ || seconds <= 0) return report;
  report.tokens_per_second = static_cast<double>(tokens_) / seconds;
  if (flops_per_token_ > 0)
    report.model_flops_utilization = *report.tokens_per_second * flops_per_token_ / peak_flops_per_second_;
  return report;
}

bool Throughput::is_report_due(const StepTimes::Report& times, int64_t interval) {
  if (times.steps < steps_at_report_) steps_at_report_ = 0;
  if (interval <= 0 || times.steps - steps_at_report_ < interval) return false;
  steps_at_report_ = times.steps;
  return true;
}

}  // namespace accel::track
