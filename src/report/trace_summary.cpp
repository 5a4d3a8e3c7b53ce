// SPDX-License-Identifier: Apache-2.0
#include "report/trace_summary.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace accel::report {
namespace {

constexpr size_t kMostOperators = 40, kMostSpansOfRank = 800, kMostRanksOfTimeline = 16, kShownSteps = 3;
constexpr double kShownMicroseconds = 200e3;  // without steps
constexpr double kSecondsOfMicrosecond = 1e-6;

double end_of(const TraceEvent& event) { return event.begin + event.length; }

// An event that contains others comes before them.
bool is_earlier(const TraceEvent& one, const TraceEvent& other) {
  if (one.lane != other.lane) return one.lane < other.lane;
  if (one.begin != other.begin) return one.begin < other.begin;
  return one.length > other.length;
}

struct Nesting {
  std::vector<double> self_lengths;
  std::vector<int> depths;
};

// Nests the events, which are in order. Events for which `counts` is false are ignored.
template <typename Counts>
Nesting nesting_of(const std::vector<TraceEvent>& events, const Counts& counts) {
  Nesting nesting{std::vector<double>(events.size()), std::vector<int>(events.size())};
  std::vector<size_t> open;
  for (size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    if (!counts(event)) continue;
    while (!open.empty() && (events[open.back()].lane != event.lane || end_of(events[open.back()]) <= event.begin))
      open.pop_back();
    nesting.self_lengths[i] = event.length;
    nesting.depths[i] = static_cast<int>(open.size());
    if (!open.empty()) {
      double& outer = nesting.self_lengths[open.back()];
      outer = std::max(0.0, outer - std::min(event.length, end_of(events[open.back()]) - event.begin));
    }
    open.push_back(i);
  }
  return nesting;
}

struct Window {
  double begin = 0;
  double end = 0;
};

// A few steps of a rank, without the first one, which prepares much, if there are enough.
Window window_of(const TraceEvents& trace, int64_t rank) {
  std::vector<Window> steps;
  double first = std::numeric_limits<double>::infinity(), first_of_ours = first;
  for (const TraceEvent& event : trace.events) {
    if (trace.lanes[event.lane].rank != rank) continue;
    first = std::min(first, event.begin);
    if (!event.is_ours) continue;
    first_of_ours = std::min(first_of_ours, event.begin);
    if (trace.names[event.kind] == "step") steps.push_back({event.begin, end_of(event)});
  }
  std::sort(steps.begin(), steps.end(), [](const Window& one, const Window& other) { return one.begin < other.begin; });
  if (steps.empty()) {
    const double begin = std::min(first, first_of_ours);
    return {begin, begin + kShownMicroseconds};
  }
  const size_t begin = steps.size() > kShownSteps ? 1 : 0, end = std::min(steps.size(), begin + kShownSteps);
  return {steps[begin].begin, steps[end - 1].end};
}

}  // namespace

void TraceSummarizer::add(const std::string& file, TraceEvents trace) {
  summary_.files.push_back(file);
  summary_.num_events += trace.num_events;
  std::sort(trace.events.begin(), trace.events.end(), is_earlier);
  const Nesting all = nesting_of(trace.events, [](const TraceEvent&) { return true; });
  add_times(trace, all.self_lengths);
  add_timeline(trace, all.depths);
}

void TraceSummarizer::add_times(const TraceEvents& trace, const std::vector<double>& self_lengths) {
  const Nesting of_ours = nesting_of(trace.events, [](const TraceEvent& event) { return event.is_ours; });
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    const std::string& kind = trace.names[event.kind];
    if (event.is_ours) {
      const int64_t rank = trace.lanes[event.lane].rank;
      SpanTime& time = spans_.try_emplace({rank, kind}, SpanTime{rank, kind}).first->second;
      ++time.count;
      time.seconds += of_ours.self_lengths[i] * kSecondsOfMicrosecond;
      time.bytes += event.bytes;
    } else if (kind != kAnnotationKind) {
      const bool is_on_device = kind == kDeviceKind;
      const std::string& name = trace.names[event.name];
      OperatorTime& time = operators_.try_emplace({is_on_device, name}, OperatorTime{name, is_on_device}).first->second;
      ++time.count;
      time.seconds += event.length * kSecondsOfMicrosecond;
      time.self_seconds += self_lengths[i] * kSecondsOfMicrosecond;
    }
  }
}

void TraceSummarizer::add_timeline(const TraceEvents& trace, const std::vector<int>& depths) {
  std::set<int64_t> ranks;
  for (const TraceLane& lane : trace.lanes) ranks.insert(lane.rank);
  for (const int64_t rank : ranks) {
    if (static_cast<size_t>(rank) >= kMostRanksOfTimeline) continue;
    const Window window = window_of(trace, rank);
    std::vector<size_t> shown;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      const TraceEvent& event = trace.events[i];
      if (trace.lanes[event.lane].rank == rank && event.begin >= window.begin && event.begin < window.end)
        shown.push_back(i);
    }
    // Our spans before operators, and long ones before short ones.
    const auto matters_more = [&trace](size_t one, size_t other) {
      const TraceEvent &a = trace.events[one], &b = trace.events[other];
      return a.is_ours != b.is_ours ? a.is_ours : a.length > b.length;
    };
    std::stable_sort(shown.begin(), shown.end(), matters_more);
    shown.resize(std::min(shown.size(), kMostSpansOfRank));
    for (const size_t i : shown) {
      const TraceEvent& event = trace.events[i];
      summary_.timeline.push_back({rank, trace.lanes[event.lane].name, trace.names[event.name], trace.names[event.kind],
                                   (trace.base + event.begin) * kSecondsOfMicrosecond,
                                   event.length * kSecondsOfMicrosecond, depths[i], event.bytes});
    }
  }
}

TraceSummary TraceSummarizer::finish() {
  for (auto& [name, time] : spans_) summary_.spans.push_back(std::move(time));
  for (auto& [name, time] : operators_) summary_.operators.push_back(std::move(time));
  std::stable_sort(
      summary_.operators.begin(), summary_.operators.end(),
      [](const OperatorTime& one, const OperatorTime& other) { return one.self_seconds > other.self_seconds; });
  summary_.operators.resize(std::min(summary_.operators.size(), kMostOperators));
  double begin = std::numeric_limits<double>::infinity();
  for (const TimelineSpan& span : summary_.timeline) begin = std::min(begin, span.begin);
  for (TimelineSpan& span : summary_.timeline) span.begin -= begin;
  return std::move(summary_);
}

}  // namespace accel::report
