// SPDX-License-Identifier: Apache-2.0
// Interface of the backend plugins (libaccel_ucx.so, libaccel_nccl.so): one C function that creates a c10d backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/collective_error.hpp"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace accel::comm {

struct BackendArguments {
  c10d::Store* store;  // borrowed for the call; the backend keeps its own reference
  int rank;
  int size;
  int64_t timeout_ms;                       // the default deadline of operations
  const char* group_name;                   // unique among the groups of one store
  const char* (*current_call)() = nullptr;  // see CurrentCall::function(); may be null
  CollectiveFailure* failure = nullptr;     // set on an error; may be null
  // The backend of the parent group, whose connections and threads may be shared. May be null.
  const c10d::Backend* parent = nullptr;
  bool stays_on_host = false;  // all ranks are on this host: no port has to be open to others
};

// The backend's works. A call may give none: then it has ended, or is queued on the current stream of the caller. For
// tensors on a device, wait() may return when it has ordered the caller's current stream behind the result.
// isCompleted() becomes true by itself, when nothing that is left waits for another rank. all_reduce and broadcast have
// a future, complete by then or ordered as wait() is. A call that fails after its start has the error in exception(),
// and throws it in wait() and in the future.
//
// Returns a new reference, or null with one line in `error` (cut at `error_size`).
using CreateBackend = c10d::Backend* (*)(const BackendArguments* arguments, char* error, size_t error_size);

inline constexpr char kCreateBackendSymbol[] = "accel_create_backend";

}  // namespace accel::comm
