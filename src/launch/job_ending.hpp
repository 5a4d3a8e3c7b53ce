// SPDX-License-Identifier: Apache-2.0
// The end of a job that the launcher has asked for: by which signal, since when, and until when ranks may still run.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "base/deadline.hpp"

namespace accel::launch {

class JobEnding {
 public:
  // An earlier call with less time holds. False: the ranks have got the signal already.
  bool begin(int signal, Deadline::Milliseconds grace) {
    begun_ = std::min(begun_, Deadline::Clock::now());
    if (!grace_ || grace < grace_->left()) grace_.emplace(grace);
    return std::exchange(signal_, signal) != signal;
  }
  // Ranks end by themselves, which may take so long.
  void expect(Deadline::Milliseconds grace) {
    if (!grace_) grace_.emplace(grace);
  }
  // Whether the grace is over, once.
  bool take_late() {
    if (!grace_ || !grace_->passed()) return false;
    grace_.reset();
    return true;
  }

  bool is_signalled() const { return signal_.has_value(); }
  const std::optional<Deadline>& grace() const { return grace_; }
  // The greatest time if it was not begun.
  Deadline::Clock::time_point begun() const { return begun_; }

 private:
  std::optional<int> signal_;  // that the ranks got last
  std::optional<Deadline> grace_;
  Deadline::Clock::time_point begun_ = Deadline::Clock::time_point::max();
};

}  // namespace accel::launch
