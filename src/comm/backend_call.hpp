// Translates a collective into a call of a c10d backend.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/collective.hpp"

namespace accel::comm {

struct BackendCallOptions {
  std::chrono::milliseconds timeout;
  bool async;  // otherwise it may run on this thread
};

// Null if the backend has completed it already.
c10::intrusive_ptr<c10d::Work> call_backend(c10d::Backend& backend, const Collective& collective,
                                            const BackendCallOptions& options);
// The same for a group of one rank, which needs no backend.
void run_alone(const Collective& collective);

}  // namespace accel::comm
