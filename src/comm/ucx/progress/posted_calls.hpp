// The calls that are posted to a group, each with its work: tasks of collectives, and messages between two ranks.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "base/deadline.hpp"
#include "comm/ucx/progress/posted_work.hpp"
#include "comm/ucx/progress/task.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

struct PostedTask {
  Task task;
  c10::intrusive_ptr<UcxWork> work;
  // The caller's, for the callbacks of the future. A pointer, so that a move cannot fail.
  std::unique_ptr<at::ThreadLocalState> thread_state;
  const char* function = nullptr;  // of the C API, that started it; null if unknown
};

// A send or a receive. They complete in any order.
struct PointToPoint {
  c10::intrusive_ptr<UcxWork> work;
  int peer = 0;  // kAnyRank receives from the first sender
  uint64_t tag = 0;
  bool receives = false;
  at::Tensor memory;  // contiguous
  at::Tensor target;  // receives a copy of the result; undefined if it is `memory`
  Deadline deadline{Deadline::Milliseconds(0)};
  std::unique_ptr<at::ThreadLocalState> thread_state;
  Message message;
};

}  // namespace accel::comm::ucx
