// SPDX-License-Identifier: Apache-2.0
// Summarizes the traces of a run: time by kind and rank, the costliest operators, and a few steps in detail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/trace_events.hpp"

namespace accel::report {

// Our spans of one kind ("collective", "wait", "data", ...), without what other spans inside them took.
struct SpanTime {
  int64_t rank = 0;
  std::string kind;
  int64_t count = 0;
  double seconds = 0;
  double bytes = 0;
};

// Over all ranks.
struct OperatorTime {
  std::string name;
  bool is_on_device = false;
  int64_t count = 0;
  double seconds = 0;       // with the operators that it calls
  double self_seconds = 0;  // without
};

// One bar of the timeline.
struct TimelineSpan {
  int64_t rank = 0;
  std::string lane;  // "thread 12"
  std::string name;
  std::string kind;  // of our spans; "operator", "device", "annotation"
  double begin = 0;  // seconds since the first of them
  double seconds = 0;
  int depth = 0;
  double bytes = 0;
};

struct TraceSummary {
  std::vector<std::string> files;  // read
  int64_t num_events = 0;
  std::vector<SpanTime> spans;
  std::vector<OperatorTime> operators;  // the costliest first
  std::vector<TimelineSpan> timeline;
};

// Sums up one file after the other, so that the events of one of them are in memory.
class TraceSummarizer {
 public:
  void add(const std::string& file, TraceEvents trace);
  TraceSummary finish();

 private:
  void add_times(const TraceEvents& trace, const std::vector<double>& self_lengths);
  void add_timeline(const TraceEvents& trace, const std::vector<int>& depths);

  TraceSummary summary_;
  std::map<std::pair<int64_t, std::string>, SpanTime> spans_;
  std::map<std::pair<bool, std::string>, OperatorTime> operators_;
};

}  // namespace accel::report
