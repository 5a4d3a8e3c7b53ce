// Interface of a backend for calls that are chunks of a larger call: those of tensors that are staged through host
// memory. Header only, because backends are plugins.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>

#include "comm/backend/collective_call.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm {

// The call of the application that a chunk belongs to. Ranks compare it and name it in errors.
struct WholeCall {
  c10::IntArrayRef shape;
  uint32_t part = 0;  // index in a coalesced call
  uint32_t parts = 1;
};

class ChunkedCalls {
 public:
  virtual ~ChunkedCalls() = default;

  virtual c10::intrusive_ptr<c10d::Work> start_chunk(CollectiveCall&& chunk, const WholeCall& whole) = 0;
  // Fails open and later calls, here and on the other ranks.
  virtual void fail(CollectiveFailure failure, const std::string& reason) = 0;
};

}  // namespace accel::comm
