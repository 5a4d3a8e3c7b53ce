// SPDX-License-Identifier: Apache-2.0
// Work: the handle of an asynchronous call, with its result or error, and callbacks.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace accel::comm {

class Work {
 public:
  using Callback = std::function<void(const std::exception_ptr& error)>;

  // Once, on any thread.
  void complete(c10::IValue result, const std::exception_ptr& error) noexcept;

  bool ended() const;
  // False if the time was over first.
  bool wait(std::chrono::milliseconds timeout) const;
  void wait() const;  // ends by the call's deadline at the latest
  // Its error; null if it succeeded or is still running.
  std::exception_ptr error() const;
  // The result of a completed call; throws its error.
  c10::IValue result() const;

  // Returns when what this thread computes next has the results: where a device does the call, its current stream waits
  // instead of the thread. Throws the error of the call.
  void synchronize() const;
  // Sets how a thread waits at the backend, which then needs no other thread to wake it. Forgotten when the call ends,
  // with what it holds.
  void set_backend_wait(std::function<void()> backend_wait);

  // A continuation of the engine: runs on the thread on which the call completes, or at once if it has. Must not throw.
  void on_end(Callback continuation);

  // Callbacks of the application run on the thread that delivers them, after completion, in the order of being added.
  // One that throws stops the delivery; the others stay.
  void add_callback(Callback callback);
  bool has_callbacks() const;
  void deliver();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ended_ = false;
  bool ending_ = false;  // its backend has nothing to wait for any more
  std::function<void()> backend_wait_;
  c10::IValue result_;
  std::exception_ptr error_;
  std::vector<Callback> continuations_, callbacks_;
};

// Completes when all have, with the error of the first in the list that failed.
std::shared_ptr<Work> when_all(std::vector<std::shared_ptr<Work>> works);

}  // namespace accel::comm
