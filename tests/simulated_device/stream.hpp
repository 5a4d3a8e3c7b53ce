// SPDX-License-Identifier: Apache-2.0
// A stream: tasks that run one after another, beside the host.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace simulated_device {

// Whether a device is lost, and how often it was: a task stays lost when the device is back.
struct Loss {
  std::atomic<bool> now{false};
  std::atomic<uint64_t> count{0};
};

using Clock = std::chrono::steady_clock;
class Capture;
class Stream;

// A position in a stream that other streams and the host can wait for.
struct Mark {
  Stream* stream;
  uint64_t position = 0;
  Clock::time_point reached;         // when the device was there; valid once is_reached()
  const Capture* capture = nullptr;  // that recorded it

  bool is_reached() const;
  void wait() const;
};

// The tasks of a stream are run by its thread, or by who waits for them: then a host thread that runs operator after
// operator on one stream does not switch threads for each. The thread begins a task some time after it was queued, so a
// host thread that does not wait runs ahead of the stream.
class Stream {
 public:
  enum class WhenLost { kSkip, kRun };

  Stream(c10::DeviceIndex device, c10::StreamId id, const Loss& loss);

  // The work begins when all earlier tasks have ended, and ends `duration` (and a random delay) later. Work does not
  // throw.
  void enqueue(std::function<void()> work, std::chrono::microseconds duration = {}, WhenLost lost = WhenLost::kSkip);
  std::shared_ptr<const Mark> record();
  void wait_for(std::shared_ptr<const Mark> mark);

  c10::DeviceIndex device() const { return device_; }
  // What records its work now; null: nothing.
  Capture* capture() const { return capture_; }
  void set_capture(Capture* capture) { capture_ = capture; }
  bool is_idle() const;
  // Returns when all that is queued now has ended.
  void synchronize();
  size_t num_pending() const;
  // No thread runs tasks any more; later ones run at once.
  void stop();

 private:
  friend struct Mark;
  struct Task {
    std::function<void()> work;
    std::chrono::microseconds duration;
    WhenLost when_lost;
    Clock::time_point queued;
    std::shared_ptr<const Mark> wait_for;
    std::shared_ptr<Mark> record;
    uint64_t losses = 0;  // of the device, when it was queued
  };

  uint64_t append(Task task);
  bool has_run(uint64_t position) const;
  void run_until(uint64_t position);
  void run_next(std::unique_lock<std::mutex>& lock);
  void run_thread();
  std::chrono::microseconds random_delay();

  const c10::DeviceIndex device_;
  const c10::StreamId id_;
  const Loss& loss_;
  std::atomic<Capture*> capture_{nullptr};
  mutable std::mutex mutex_;
  std::condition_variable queued_;  // for the thread
  std::condition_variable ended_;   // a task has ended
  std::deque<Task> tasks_;
  uint64_t num_queued_ = 0;
  uint64_t num_ended_ = 0;
  bool running_ = false;
  bool thread_sleeps_ = false;
  bool stopped_ = false;
  Clock::time_point busy_until_;
  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::thread thread_;
};

}  // namespace simulated_device
