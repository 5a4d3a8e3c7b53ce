// SPDX-License-Identifier: Apache-2.0
#include "trace/span_events.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "json/json.hpp"
#include "trace/trace_text.hpp"

namespace accel::track {
namespace {

std::string quoted(const std::string& text) { return print_json(Json(text)); }

std::string thread_name_event(int64_t process, int64_t track, const std::string& name, int64_t place) {
  const std::string of = text(R"(,"ts":0,"pid":)", process, R"(,"tid":)", track, R"(,"args":{)");
  return text(R"({"ph":"M","name":"thread_name")", of, R"("name":)", quoted(name), "}},\n",
              R"({"ph":"M","name":"thread_sort_index")", of, R"("sort_index":)", place, "}},\n");
}

std::string event_of(const SpanRecord& span, int64_t begun, int64_t ended, int64_t process, int64_t track) {
  std::string arguments = text(R"({"kind":")", span_kind_name(span.kind), '"');
  if (span.bytes > 0) arguments += text(R"(,"bytes":)", span.bytes);
  if (span.ranks > 0) arguments += text(R"(,"ranks":)", span.ranks);
  if (!span.group.empty()) arguments += text(R"(,"group":)", quoted(span.group), R"(,"sequence":)", span.sequence);
  return text(R"({"ph":"X","cat":"accel","name":)", quoted(span.name != nullptr ? span.name : span.own_name),
              R"(,"pid":)", process, R"(,"tid":)", track, R"(,"ts":)", trace_microseconds(begun), R"(,"dur":)",
              trace_microseconds(std::max<int64_t>(ended - begun, 0)), R"(,"args":)", arguments, "}},\n");
}

// The first track on which nothing runs at that time.
size_t free_lane(std::vector<uint64_t>& busy_until, const SpanRecord& span) {
  size_t lane = 0;
  while (lane < busy_until.size() && busy_until[lane] > span.begun) lane++;
  if (lane == busy_until.size()) busy_until.push_back(0);
  busy_until[lane] = span.ended;
  return lane;
}

}  // namespace

std::string span_events(const Spans::Recording& recording, int64_t base, int64_t process) {
  std::vector<const Spans::Recorded*> in_order;
  for (const Spans::Recorded& recorded : recording.spans) in_order.push_back(&recorded);
  std::stable_sort(in_order.begin(), in_order.end(), [](const Spans::Recorded* one, const Spans::Recorded* other) {
    return std::make_pair(one->span.begun, other->span.ended) < std::make_pair(other->span.begun, one->span.ended);
  });
  std::string events;
  std::vector<uint64_t> busy_until;
  bool has_loop = false;
  for (const Spans::Recorded* recorded : in_order) {
    const SpanRecord& span = recorded->span;
    int64_t track = recorded->thread;
    if (span.is_of_loop) track = kLoopTrack;
    if (span.kind == SpanKind::kCollective)
      track = kCollectiveTracks + static_cast<int64_t>(free_lane(busy_until, span));
    has_loop |= span.is_of_loop;
    events +=
        event_of(span, recording.to_unix(span.begun) - base, recording.to_unix(span.ended) - base, process, track);
  }
  if (has_loop) events += thread_name_event(process, kLoopTrack, "training loop", -2);
  for (size_t lane = 0; lane < busy_until.size(); lane++)
    events += thread_name_event(process, kCollectiveTracks + static_cast<int64_t>(lane),
                                lane == 0 ? "collectives" : text("collectives ", lane + 1), -1);
  for (const auto& [thread, name] : recording.threads)
    if (thread != process)
      events += thread_name_event(process, thread, text("thread ", thread, " (", name, ")"), thread);
  return events;
}

}  // namespace accel::track
