// SPDX-License-Identifier: Apache-2.0
// Deadline of a wait. Every wait of the engine has one.
#pragma once

#include <algorithm>
#include <chrono>

namespace accel {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds from_now) : total_(from_now), end_(Clock::now() + from_now) {}
  // Moves the end without another look at the clock, which takes 25 ns.
  Deadline later(Milliseconds more) const {
    Deadline deadline = *this;
    deadline.total_ += more;
    deadline.end_ += more;
    return deadline;
  }
  bool passed() const { return Clock::now() >= end_; }
  Milliseconds left() const {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(end_ - Clock::now()));
  }
  Milliseconds total() const { return total_; }

 private:
  Milliseconds total_;
  Clock::time_point end_;
};

}  // namespace accel
