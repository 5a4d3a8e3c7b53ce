// SPDX-License-Identifier: Apache-2.0
#include "trace/span.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "trace/span_events.hpp"
#include "trace/step_times.hpp"
#include "trace/trace_text.hpp"

namespace accel {
namespace span_test {

SpanRecord collective(uint64_t begun, uint64_t ended) {
  SpanRecord span;
  span.kind = SpanKind::kCollective;
  span.name = "all_reduce";
  span.begun = begun;
  span.ended = ended;
  span.bytes = 64;
  span.ranks = 2;
  span.group = "world";
  span.sequence = 7;
  return span;
}

TEST(Span, IsRecordedWhileSomethingRecords) {
  { const Span before(SpanKind::kWait, "before"); }
  Spans::begin(/*with_modules=*/false);
  { const Span within(SpanKind::kOffload, "within", 12, 3); }
  { const Span named(SpanKind::kProgram, std::string("a name that is not a literal")); }
  EXPECT_FALSE(Spans::has_modules());
  const int64_t before_end = unix_nanoseconds();
  const Spans::Recording recording = Spans::end();
  { const Span after(SpanKind::kWait, "after"); }
  ASSERT_EQ(recording.spans.size(), 2U);
  EXPECT_STREQ(recording.spans[0].span.name, "within");
  EXPECT_EQ(recording.spans[0].span.bytes, 12);
  EXPECT_EQ(recording.spans[0].span.ranks, 3);
  EXPECT_EQ(recording.spans[1].span.own_name, "a name that is not a literal");
  EXPECT_EQ(recording.dropped, 0);
  const int64_t begun = recording.to_unix(recording.spans[0].span.begun);
  const int64_t second = 1'000'000'000;  // this thread may have been interrupted
  EXPECT_LT(std::abs(begun - before_end), second);
  EXPECT_TRUE(Spans::end().spans.empty());
}

TEST(Span, EachRecordingHasItsOwn) {
  for (int round = 1; round < 4; round++) {
    Spans::begin(true);
    EXPECT_TRUE(Spans::has_modules());
    for (int i = 0; i < round; i++) const Span span(SpanKind::kModule, "layer");
    EXPECT_EQ(Spans::end().spans.size(), static_cast<size_t>(round));
  }
}

TEST(Span, WhatDoesNotFitIsCounted) {
  constexpr int kMany = 70000;
  Spans::begin(false);
  for (int i = 0; i < kMany; i++) const Span span(SpanKind::kProgram, "one of many");
  const Spans::Recording recording = Spans::end();
  EXPECT_GT(recording.dropped, 0);
  EXPECT_EQ(static_cast<int64_t>(recording.spans.size()) + recording.dropped, kMany);
}

TEST(Span, ThreadsRecordWhileTheRecordingEnds) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&] {
      while (!stop) const Span span(SpanKind::kProgram, std::string("made by a thread of its own"));
    });
  size_t recorded = 0;
  for (int round = 0; round < 50; round++) {
    Spans::begin(false);
    std::this_thread::yield();
    for (const auto& [span, thread] : Spans::end().spans) {
      EXPECT_EQ(span.own_name, "made by a thread of its own");
      EXPECT_LE(span.begun, span.ended);
      recorded++;
    }
  }
  for (; recorded == 0; std::this_thread::yield()) {  // on a busy machine
    Spans::begin(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    recorded += Spans::end().spans.size();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(recorded, 0U);
}

TEST(Span, PartsOfStepsAreSpansWithoutASection) {
  StepTimes times;
  const auto pass = [&](StepPart part) { const StepTimes::Section section(times, part); };
  pass(StepPart::kForward);
  Spans::begin(false);
  for (int step = 0; step < 2; step++) {
    pass(StepPart::kData);
    pass(StepPart::kForward);
    pass(StepPart::kBackward);
    pass(StepPart::kOptimizer);
    times.note_update();
  }
  times.end_recording();
  const Spans::Recording recording = Spans::end();
  const auto count = [&](SpanKind kind) {
    return std::count_if(recording.spans.begin(), recording.spans.end(), [kind](const Spans::Recorded& recorded) {
      EXPECT_TRUE(recorded.span.is_of_loop);
      return recorded.span.kind == kind;
    });
  };
  EXPECT_EQ(count(SpanKind::kData), 2);
  EXPECT_EQ(count(SpanKind::kForward), 2);
  EXPECT_EQ(count(SpanKind::kBackward), 2);
  EXPECT_EQ(count(SpanKind::kOptimizer), 2);
  EXPECT_EQ(count(SpanKind::kStep), 2);
}

TEST(Span, EventsThatOverlapHaveTracksOfTheirOwn) {
  Spans::Recording recording;
  recording.spans = {{collective(10, 30), 5}, {collective(20, 40), 5}, {collective(30, 50), 6}};
  const std::string events = track::span_events(recording, 0, 1);
  const std::string trace = "{\"traceEvents\":[" + events.substr(0, events.rfind(',')) + "]}";
  std::vector<int64_t> tracks;
  track::TraceText(trace, "events").for_each_event([&](std::string_view event) {
    const Json json = parse_json(event, "event");
    if (json_text(json, "ph", "") != "X") return true;
    tracks.push_back(json_integer(json, "tid", 0) - track::kCollectiveTracks);
    const Json* const arguments = json_member(json, "args");
    EXPECT_EQ(json_integer(*arguments, "bytes", 0), 64);
    EXPECT_EQ(json_integer(*arguments, "sequence", 0), 7);
    EXPECT_EQ(json_text(*arguments, "group", ""), "world");
    return true;
  });
  EXPECT_EQ(tracks, (std::vector<int64_t>{0, 1, 0}));
}

}  // namespace span_test
}  // namespace accel
