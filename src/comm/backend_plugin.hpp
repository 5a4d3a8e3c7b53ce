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
};

// Returns a new reference, or null with one line in `error` (cut at `error_size`).
using CreateBackend = c10d::Backend* (*)(const BackendArguments* arguments, char* error, size_t error_size);

inline constexpr char kCreateBackendSymbol[] = "accel_create_backend";

}  // namespace accel::comm
