// SPDX-License-Identifier: Apache-2.0
// Throughput: the tokens that a rank trains with, and what they cost.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/step_times.hpp"

namespace accel::track {

// For the loop's thread.
class Throughput {
 public:
  void count(int64_t n_tokens);
  void set_model(double flops_per_token, double peak_flops_per_second);
  void reset();

  struct Report {
    std::optional<double> tokens_per_second, model_flops_utilization;
  };
  // Over the time of the loop since the last reset, which its step times know.
  Report report(const StepTimes::Report& times) const;

  // Whether a step report is due: `interval` steps have ended since the last one that was. Never for 0.
  bool is_report_due(const StepTimes::Report& times, int64_t interval);

 private:
  bool counts_ = false;
  int64_t tokens_ = 0;
  double flops_per_token_ = 0, peak_flops_per_second_ = 0;
  int64_t steps_at_report_ = 0;
};

}  // namespace accel::track
