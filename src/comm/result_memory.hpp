// The memory of the latest large result, kept for the next one: otherwise most of the time of a large gather goes into
// the faults of fresh pages.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <mutex>

namespace accel::comm {

// Thread-safe.
class ResultMemory {
 public:
  // A tensor that is not initialised.
  at::Tensor take(at::IntArrayRef shape, const at::TensorOptions& options);
  void release();

 private:
  std::mutex mutex_;
  c10::Storage kept_;  // used again once nobody else has it
};

}  // namespace accel::comm
