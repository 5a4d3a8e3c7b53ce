// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "stream.hpp"

namespace simulated_device {
namespace {

std::atomic<uint64_t> num_pools{0};
thread_local int captures_here = 0;

// A device stops at an error of a kernel, such as an index outside of its table.
void run(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a replayed operator failed: %s\n", error.what());
    std::abort();
  }
}

}  // namespace

Capture::Capture(uint64_t pool) : pool_(pool == 0 ? ++num_pools : pool) {}

void Capture::add(std::function<void()> work, std::chrono::microseconds duration) {
  if (work) tasks_->works.push_back(std::move(work));
  tasks_->duration += duration;
}

void Capture::replay(Stream& stream) const {
  stream.enqueue(
      [tasks = tasks_] {
        for (const auto& work : tasks->works) run(work);
      },
      tasks_->duration);
}

void require_no_capture(const Stream& stream, const char* what) {
  TORCH_CHECK(!stream.capture(), what, ": operation not permitted when stream is capturing");
}

void require_no_capture(const Mark& mark, const char* what) {
  if (mark.capture != nullptr || captures_here > 0) require_no_capture(*mark.stream, what);
}

void count_captures_here(int change) { captures_here += change; }

}  // namespace simulated_device
