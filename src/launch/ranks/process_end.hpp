// SPDX-License-Identifier: Apache-2.0
// The end of a process: its description and exit status.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>

namespace accel::launch {

struct ProcessEnd {
  bool by_signal = false;
  int number = 0;           // the exit status, or the signal
  int64_t peak_memory = 0;  // bytes; 0: not known
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();

  bool is_success() const { return !by_signal && number == 0; }
  int exit_status() const { return by_signal ? 128 + number : number; }  // as a shell tells it
};

ProcessEnd process_end(const siginfo_t& info);

// "SIGKILL"
std::string signal_name(int signal);

// "exit status 3", "SIGKILL: killed, often by the out-of-memory killer"
std::string describe(const ProcessEnd& end);

}  // namespace accel::launch
