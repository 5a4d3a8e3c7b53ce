// SPDX-License-Identifier: Apache-2.0
// Spans: what the library does when, on all its threads, for traces. Off by default: one load of a flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/tick_clock.hpp"

namespace accel {

enum class SpanKind : uint8_t {
  kProgram,
  kStep,
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kWait,
  kCollective,
  kOffload,
  kCheckpoint,
  kModule,
};
const char* span_kind_name(SpanKind kind);

struct SpanRecord {
  SpanKind kind = SpanKind::kProgram;
  const char* name = "";   // a literal; null: own_name
  std::string own_name{};  // copied
  uint64_t begun = 0, ended = 0;
  int64_t bytes = 0;
  int32_t ranks = 0;
  bool is_of_loop = false;  // a part of the training loop's step
  std::string group{};      // of a collective: its ranks; `sequence` is the call's number in it
  uint64_t sequence = 0;
};

// [Note: recording spans] Each thread appends to a buffer of its own, without a lock: its chunks never move, and the
// count of what is in them is stored last. Whoever ends the recording reads that many. Spans that do not fit are
// counted. A buffer is used again in the next recording, which its thread sees by the recording's number.
class Spans {
 public:
  struct Recorded {
    SpanRecord span;
    int64_t thread;  // as the system numbers it
  };
  struct Recording {
    std::vector<Recorded> spans;
    std::vector<std::pair<int64_t, std::string>> threads;  // with their names
    int64_t dropped = 0;
    TickClock::Converter to_unix;
  };

  static bool are_recorded() { return current_recording.load(std::memory_order_relaxed) != 0; }
  static bool has_modules() { return records_modules.load(std::memory_order_relaxed); }
  // Drops it if nothing is recorded, or there is no memory.
  static void add(SpanRecord span) noexcept;

  // One recording at a time in a process.
  static void begin(bool with_modules);
  // Returns the spans that have ended since begin().
  static Recording end();

 private:
  static inline std::atomic<uint64_t> current_recording{0};  // its number; 0: none
  static inline std::atomic<bool> records_modules{false};
};

// The time of a scope.
class Span {
 public:
  Span(SpanKind kind, const char* name, int64_t bytes = 0, int32_t ranks = 0) {
    if (Spans::are_recorded()) begin(kind, name, bytes, ranks);
  }
  // With a name that is not a literal.
  Span(SpanKind kind, std::string name) {
    if (!Spans::are_recorded()) return;
    begin(kind, nullptr, 0, 0);
    record_.own_name = std::move(name);
  }
  ~Span() {
    if (is_recorded_) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(SpanKind kind, const char* name, int64_t bytes, int32_t ranks);
  void end() noexcept;

  bool is_recorded_ = false;
  SpanRecord record_;
};

}  // namespace accel
