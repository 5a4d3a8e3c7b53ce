// SPDX-License-Identifier: Apache-2.0
// Pauses between polls of what ends soon or takes long: the first ones only yield the processor.
#pragma once

#include <chrono>
#include <thread>

namespace accel {

class Polling {
 public:
  void pause() {
    if (polls_++ < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  static constexpr int kYields = 100;
  int polls_ = 0;
};

}  // namespace accel
