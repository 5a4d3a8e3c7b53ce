// SPDX-License-Identifier: Apache-2.0
// Spin: how long a wait spins before it sleeps in the kernel. Where spinning brings nothing, because other programs use
// the processors or one rank is always late, it would only take time from them; so it is left out, and tried again now
// and then.
#pragma once

#include <algorithm>
#include <chrono>

namespace accel::comm::ucx {

class Spin {
 public:
  explicit Spin(std::chrono::microseconds longest) : longest_(longest) {}

  void turn_off() { longest_ = {}; }
  // How long the wait that begins may spin; 0: it sleeps at once.
  std::chrono::microseconds length() const { return left_out_ > 0 ? std::chrono::microseconds(0) : longest_; }

  // How the wait went: it ended while it spun, or it has to sleep.
  void ended_early() {
    misses_ = 0;
    pause_ = 1;
  }
  void slept() {
    if (left_out_ > 0) {
      left_out_ -= 1;
    } else if (++misses_ >= kPatience) {
      misses_ = kPatience - 1;  // the next one is a trial
      pause_ = std::min(2 * pause_, kLongestPause);
      left_out_ = pause_;
    }
  }

 private:
  static constexpr int kPatience = 4;
  static constexpr int kLongestPause = 64;  // waits

  std::chrono::microseconds longest_;
  int misses_ = 0;    // spins in a row that brought nothing
  int pause_ = 1;     // waits without a spin after the latest of them
  int left_out_ = 0;  // that are still to come
};

}  // namespace accel::comm::ucx
