// The step reports of ranks, and who gets them: the application, trackers, a server of live metrics.
#pragma once

#include <cstdint>

#include "config/generated/settings/report.hpp"
#include "track/step_report.hpp"

namespace accel::accelerator {

class Accelerator;

// The report of this rank. For the loop's thread.
track::RankReport step_report(Accelerator& accelerator, bool reset);

// Collective: of all ranks, the same on each.
track::JobReport step_report_of_ranks(Accelerator& accelerator, bool reset);

// Counts tokens of the loop.
void count_tokens(Accelerator& accelerator, int64_t n_tokens);

// Returns the port.
int serve_metrics(Accelerator& accelerator, const ServeMetricsSettings& settings);

// After each log. Costs nothing without a server and without an interval, in steps, at which trackers get the report of
// this rank.
void note_log(Accelerator& accelerator, int64_t step_report_interval);

}  // namespace accel::accelerator
