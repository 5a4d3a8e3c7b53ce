// SPDX-License-Identifier: Apache-2.0
// Soak test: all processors compute known products and compare memory for a while, which finds a bad core or memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace accel::program {

struct SoakSettings {
  std::chrono::duration<double> length{0};
  std::optional<int64_t> memory;  // bytes of all threads; not set: half of what is available
  bool is_json = false;
};

// Prints each processor that fails when it first does, and in the end what was done. Returns the exit status: 1 if any
// failed, 130 after SIGINT and 143 after SIGTERM, which end it early.
int run_soak(const SoakSettings& settings);

}  // namespace accel::program
