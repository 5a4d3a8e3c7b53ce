// SPDX-License-Identifier: Apache-2.0
// Recording of a stream while a graph is captured: the work of its operators and copies, to be done again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace simulated_device {

struct Mark;
class Stream;

class Capture {
 public:
  // A pool of 0 is a new one.
  explicit Capture(uint64_t pool);

  // Memory that is allocated for the stream meanwhile belongs to this pool.
  uint64_t pool() const { return pool_; }
  // Work reads and writes memory of the device by its addresses, and does not throw but for what it finds there.
  void add(std::function<void()> work, std::chrono::microseconds duration);
  // Queues everything that was added.
  void replay(Stream& stream) const;

 private:
  struct Tasks {
    std::vector<std::function<void()>> works;
    std::chrono::microseconds duration{0};
  };
  const uint64_t pool_;
  const std::shared_ptr<Tasks> tasks_ = std::make_shared<Tasks>();
};

// Throws if the stream is recorded: `what` waits for results, which there are none of.
void require_no_capture(const Stream& stream, const char* what);
// As CUDA's thread-local mode: other threads may go on with events from before the recording.
void require_no_capture(const Mark& mark, const char* what);
// This thread begins (1) or ends (-1) a recording.
void count_captures_here(int change);

}  // namespace simulated_device
