// The largest batch size that fits into memory, by trying. @accelerate utils.find_executable_batch_size
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"
#include "comm/communicator.hpp"

namespace accel::accelerator {

// How an attempt with one size ended; an attempt that failed in another way throws. The numbers are in order of what
// the ranks do when their attempts end differently.
enum class AttemptResult : int64_t {
  kFits = 0,
  kInterrupted = 1,  // in a collective, by a rank that did not take part in it
  kOutOfMemory = 2,
  kFailed = 3,
};

struct Attempt {
  AttemptResult result = AttemptResult::kFits;
  std::string reason;
};

struct BatchSizeSearch {
  std::function<Attempt(int64_t batch_size)> attempt;
  // The next size after one that did not fit.
  std::function<int64_t(int64_t batch_size, int64_t proposed, const std::string& reason)> reduce;
  std::function<void()> release_memory;  // before each attempt
};

// Whether an error of this status and text says that memory ran out, as the reference reads them.
bool is_out_of_memory(Status status, const std::string& message);

// Collective: all ranks try the same sizes, and go on to the next one when one of them ran out of memory.
int64_t find_executable_batch_size(comm::Communicator& communicator, const BatchSizeSearch& search,
                                   int64_t starting_batch_size);

}  // namespace accel::accelerator
