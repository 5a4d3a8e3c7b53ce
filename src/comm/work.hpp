// What a call that was started will have given: its result or its error, and who wants to hear of it.
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
  // False when the time was over first.
  bool wait(std::chrono::milliseconds timeout) const;
  void wait() const;  // ends by the call's own deadline
  // What it threw; null when it succeeded or goes on.
  std::exception_ptr error() const;
  // Of a call that has ended; throws its error.
  c10::IValue result() const;

  // What the engine does next: on the thread on which the call ends, or at once when it has. Must not throw.
  void on_end(Callback continuation);

  // The program's callbacks run on the thread that delivers them, after the end, in the order in which they were added.
  // One that throws stops the delivery; the others stay.
  void add_callback(Callback callback);
  bool has_callbacks() const;
  void deliver();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ended_ = false;
  c10::IValue result_;
  std::exception_ptr error_;
  std::vector<Callback> continuations_, callbacks_;
};

// Ends when all have, with the error of the first in the list that failed.
std::shared_ptr<Work> when_all(std::vector<std::shared_ptr<Work>> works);

}  // namespace accel::comm
