// SPDX-License-Identifier: Apache-2.0
// Search for the largest batch size that fits into memory. @accelerate utils.find_executable_batch_size
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"
#include "comm/communicator.hpp"

namespace accel::accelerator {

// The result of an attempt with one size; other failures are thrown. If the ranks have different results, the largest
// number decides.
enum class AttemptResult : int64_t {
  kFits = 0,
  kInterrupted = 1,  // in a collective in which another rank did not take part
  kOutOfMemory = 2,
  kFailed = 3,
};

struct Attempt {
  AttemptResult result = AttemptResult::kFits;
  std::string reason;
};

struct BatchSizeSearch {
  std::function<Attempt(int64_t batch_size)> attempt;
  // The next size to try.
  std::function<int64_t(int64_t batch_size, int64_t proposed, const std::string& reason)> reduce;
  std::function<void()> release_memory;  // before each attempt
};

// Whether an error means that memory ran out, by Accelerate's rules.
bool is_out_of_memory(Status status, const std::string& message);

// Collective: all ranks try the same sizes, and continue with the next one if any of them runs out of memory.
int64_t find_executable_batch_size(comm::Communicator& communicator, const BatchSizeSearch& search,
                                   int64_t starting_batch_size);

}  // namespace accel::accelerator
