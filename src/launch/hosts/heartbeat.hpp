// SPDX-License-Identifier: Apache-2.0
// The signs of life on a link between two launchers: each side sends some, and misses those of the other.
#pragma once

#include "base/deadline.hpp"

namespace accel::launch {

class Heartbeat {
 public:
  void restart() { heard_ = beat_ = Deadline::Clock::now(); }
  void hear() { heard_ = Deadline::Clock::now(); }
  bool is_silent(Deadline::Milliseconds silence) const { return Deadline::Clock::now() - heard_ > silence; }
  // Whether a beat is to be sent now.
  bool take_beat() {
    if (Deadline::Clock::now() - beat_ <= kBeat) return false;
    beat_ = Deadline::Clock::now();
    return true;
  }

 private:
  static constexpr Deadline::Milliseconds kBeat{1000};
  Deadline::Clock::time_point heard_ = Deadline::Clock::now(), beat_ = Deadline::Clock::now();
};

}  // namespace accel::launch
