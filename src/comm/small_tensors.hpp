// The small tensors of a tree travel together: as one message for each operation and, where they are reduced, dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Up to the size at which bytes count for more than messages.
bool is_small(const at::Tensor& tensor);

// What is posted for the small tensors of a call, and what becomes of them: the first collective compares their shapes.
struct SmallTensors {
  std::vector<Collective> collectives;
  // Of the round that they are posted in. The error of ranks that disagree says what this rank has. Null without them.
  std::function<std::vector<at::Tensor>(const std::exception_ptr& error)> finish;
};

// All take contiguous small tensors, but reduce_small() any.

// With a dimension 0: those of all ranks, each joined along it.
SmallTensors gather_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors);
// New tensors. Those of a dtype are joined, and reduced in place by `reduce` and then `finish`.
SmallTensors reduce_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors,
                          const std::function<Collective(const at::Tensor&)>& reduce,
                          const std::function<void(const at::Tensor&)>& finish);
// In place.
SmallTensors broadcast_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors, int from);

}  // namespace accel::comm
