// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/process_exit.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace accel::comm::ucx {
namespace {

std::atomic<bool> process_exits{false};

}  // namespace

bool watch_process_exit() {
  static const int registered = std::atexit([] { process_exits.store(true); });
  return registered == 0;
}

void stop_if_process_exits() {
  while (process_exits.load(std::memory_order_relaxed)) pause();
}

}  // namespace accel::comm::ucx
