// A collective as the call of a c10d backend.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/collective.hpp"

namespace accel::comm {

struct BackendCallOptions {
  std::chrono::milliseconds timeout;
  bool async;  // else it may run on this thread
};

// Null where the backend has ended it at once.
c10::intrusive_ptr<c10d::Work> call_backend(c10d::Backend& backend, const Collective& collective,
                                            const BackendCallOptions& options);
// The same for a group of one rank, which needs no backend.
void run_alone(const Collective& collective);

}  // namespace accel::comm
