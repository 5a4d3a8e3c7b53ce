// SPDX-License-Identifier: Apache-2.0
// The calls that are posted to a group, each with its work: tasks of collectives, and messages between two ranks.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
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

// Where a message is: in the memory of its sender's process, until the receiver has answered.
struct Offer {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // of the answer
};

// A send or a receive. They complete in any order.
struct PointToPoint {
  c10::intrusive_ptr<UcxWork> work;
  int peer = 0;  // kAnyRank receives from the first sender
  uint64_t tag = 0;
  bool receives = false;
  bool is_async = true;         // otherwise its caller makes the progress that it needs soon
  bool may_be_shorter = false;  // what a receive takes
  at::Tensor memory;            // contiguous
  at::Tensor target;            // receives a copy of the result; undefined if it is `memory`
  Deadline deadline{Deadline::Milliseconds(0)};
  std::unique_ptr<at::ThreadLocalState> thread_state;
  Message message;  // or the answer to the offer, and then the message that was not read

  // A message that the receiver reads out of the sender's memory.
  enum class Phase : uint8_t { kPosted, kReading, kEnding };
  Phase phase = Phase::kPosted;
  Offer offer;
  int sender = 0;
  size_t bytes_read = 0;
  std::exception_ptr error;  // of a receive, which is answered nevertheless
  at::Tensor offer_memory;   // the sender's offer as it is sent, and the answer; of the receiver of a tiny tensor
  Message offered;           // or the receiver's answer that asks for the message
};

}  // namespace accel::comm::ucx
