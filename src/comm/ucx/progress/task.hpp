// The work of a group: tasks of collectives, and messages between two ranks.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/progress/posted_work.hpp"
#include "comm/ucx/transport/transport.hpp"

namespace accel::comm::ucx {

// Collectives that belong to one call and one Work, run one after the other.
struct Task {
  c10::intrusive_ptr<UcxWork> work;  // once it is submitted
  std::vector<Collective> parts;
  const char* call = nullptr;                             // the function of the C API that started it; null if unknown
  std::vector<at::Tensor> held;                           // keeps the memory of the parts alive
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // (to, from): results for tensors that are not contiguous
  std::chrono::milliseconds timeout{0};
  // For its work, which takes the outputs.
  c10d::OpType type = c10d::OpType::COALESCED;
  std::vector<at::Tensor> outputs;
  bool async = false;  // otherwise its caller waits for it
  // The caller's, for the callbacks of the future. A pointer, so that a move cannot fail.
  std::unique_ptr<at::ThreadLocalState> thread_state;
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
