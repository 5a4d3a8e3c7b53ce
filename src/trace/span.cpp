// SPDX-License-Identifier: Apache-2.0
#include "trace/span.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

namespace accel {
namespace {

constexpr size_t kSpansInChunk = 512;
constexpr size_t kChunksOfThread = 128;  // 65536 spans

// See [Note: recording spans].
struct ThreadSpans {
  const int64_t thread = syscall(SYS_gettid);
  std::string name;
  std::atomic<uint64_t> recording{0};
  std::atomic<size_t> count{0};
  std::atomic<int64_t> dropped{0};
  std::array<std::unique_ptr<std::array<SpanRecord, kSpansInChunk>>, kChunksOfThread> chunks;
};

struct ThreadList {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadSpans>> threads;
  uint64_t recordings = 0;
  TickClock clock;
  uint64_t begun = 0;
};

// Never destroyed: threads may end after everything else.
ThreadList& thread_list() {
  static ThreadList& list = *std::make_unique<ThreadList>().release();
  return list;
}

std::shared_ptr<ThreadSpans> new_thread() {
  auto spans = std::make_shared<ThreadSpans>();
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  spans->name = name;
  ThreadList& list = thread_list();
  const std::lock_guard lock(list.mutex);
  list.threads.push_back(spans);
  return spans;
}

ThreadSpans& this_thread_spans() {
  static thread_local const std::shared_ptr<ThreadSpans> spans = new_thread();
  return *spans;
}

// A span that began before the recording is cut: it begins with the recording.
Spans::Recorded clipped(const SpanRecord& span, int64_t thread, uint64_t begun) {
  Spans::Recorded recorded{span, thread};
  recorded.span.begun = std::max(recorded.span.begun, begun);
  return recorded;
}

}  // namespace

const char* span_kind_name(SpanKind kind) {
  static const char* const names[] = {"program", "step",       "data",    "forward",    "backward", "optimizer",
                                      "wait",    "collective", "offload", "checkpoint", "module"};
  return names[static_cast<int>(kind)];
}

void Spans::add(SpanRecord span) noexcept {
  const uint64_t recording = current_recording.load(std::memory_order_acquire);
  if (recording == 0) return;
  try {
    ThreadSpans& own = this_thread_spans();
    if (own.recording.load(std::memory_order_relaxed) != recording) {
      own.count.store(0, std::memory_order_relaxed);
      own.dropped.store(0, std::memory_order_relaxed);
      own.recording.store(recording, std::memory_order_release);
    }
    const size_t count = own.count.load(std::memory_order_relaxed);
    const size_t chunk = count / kSpansInChunk;
    if (chunk == kChunksOfThread) {
      own.dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (!own.chunks[chunk]) own.chunks[chunk] = std::make_unique<std::array<SpanRecord, kSpansInChunk>>();
    (*own.chunks[chunk])[count % kSpansInChunk] = std::move(span);
    own.count.store(count + 1, std::memory_order_release);
  } catch (const std::exception&) {
    // No memory for a trace: training goes on.
  }
}

void Spans::begin(bool with_modules) {
  this_thread_spans();  // made now, so that what ends the recording with the thread still finds it
  ThreadList& list = thread_list();
  const std::lock_guard lock(list.mutex);
  const auto is_gone = [](const std::shared_ptr<ThreadSpans>& spans) { return spans.use_count() == 1; };
  list.threads.erase(std::remove_if(list.threads.begin(), list.threads.end(), is_gone), list.threads.end());
  list.clock = TickClock();
  list.begun = ticks();
  records_modules.store(with_modules, std::memory_order_relaxed);
  current_recording.store(++list.recordings, std::memory_order_release);
}

Spans::Recording Spans::end() {
  ThreadList& list = thread_list();
  const std::lock_guard lock(list.mutex);
  const uint64_t number = current_recording.exchange(0, std::memory_order_acq_rel);
  records_modules.store(false, std::memory_order_relaxed);
  Recording recording;
  recording.to_unix = list.clock.converter();
  for (const auto& thread : list.threads) {
    if (number == 0 || thread->recording.load(std::memory_order_acquire) != number) continue;
    const size_t count = thread->count.load(std::memory_order_acquire);
    if (count > 0) recording.threads.emplace_back(thread->thread, thread->name);
    for (size_t i = 0; i < count; i++) {
      const SpanRecord& span = (*thread->chunks[i / kSpansInChunk])[i % kSpansInChunk];
      if (span.ended > list.begun) recording.spans.push_back(clipped(span, thread->thread, list.begun));
    }
    recording.dropped += thread->dropped.load(std::memory_order_relaxed);
  }
  return recording;
}

void Span::begin(SpanKind kind, const char* name, int64_t bytes, int32_t ranks) {
  is_recorded_ = true;
  record_.kind = kind;
  record_.name = name;
  record_.bytes = bytes;
  record_.ranks = ranks;
  record_.begun = ticks();
}

void Span::end() noexcept {
  record_.ended = ticks();
  Spans::add(std::move(record_));
}

}  // namespace accel
