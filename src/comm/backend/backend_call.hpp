// SPDX-License-Identifier: Apache-2.0
// Translates collectives into calls of a c10d backend.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/collective.hpp"

namespace accel::comm {

struct BackendCallOptions {
  std::chrono::milliseconds timeout;
  bool async;  // otherwise it may run on this thread
};

// Never null: see queued_work.hpp. Several are one call of the backend, which must coalesce: it fails as a whole.
c10::intrusive_ptr<c10d::Work> call_backend(c10d::Backend& backend, c10::ArrayRef<const Collective*> collectives,
                                            const BackendCallOptions& options);
inline c10::intrusive_ptr<c10d::Work> call_backend(c10d::Backend& backend, const Collective& collective,
                                                   const BackendCallOptions& options) {
  const Collective* const only = &collective;
  return call_backend(backend, c10::ArrayRef<const Collective*>(only), options);
}
// Runs a collective of a group of one rank, which needs no backend.
void run_alone(const Collective& collective);

}  // namespace accel::comm
