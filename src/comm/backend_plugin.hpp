// What a backend plugin (libaccel_ucx.so, libaccel_nccl.so) exports: one C function that makes its c10d backend.
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
  int64_t timeout_ms;                       // the deadline of every operation that names none
  const char* group_name;                   // unique among the groups of one store
  const char* (*current_call)() = nullptr;  // see CurrentCall::function(); may be null
  CollectiveFailure* failure = nullptr;     // what kind of error it is, where there is one; may be null
  // That of the group which this one is made of: they may have connections and threads in common. May be null.
  const c10d::Backend* parent = nullptr;
};

// Returns a new reference, or null with one line in `error` (cut at `error_size`).
using CreateBackend = c10d::Backend* (*)(const BackendArguments* arguments, char* error, size_t error_size);

inline constexpr char kCreateBackendSymbol[] = "accel_create_backend";

}  // namespace accel::comm
