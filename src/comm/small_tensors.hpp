// The small tensors of a tree travel together: as one message for each operation and, where they are reduced, dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Up to the size at which bytes count for more than messages.
bool is_small(const at::Tensor& tensor);

// All take contiguous small tensors. The error of ranks that disagree says what this rank has.

// With a dimension 0: those of all ranks, each joined along it.
std::vector<at::Tensor> gather_small(Communicator& communicator, const std::vector<at::Tensor>& tensors);
// New tensors. Those of a dtype are joined, and reduced in place by `reduce`.
std::vector<at::Tensor> reduce_small(Communicator& communicator, const std::vector<at::Tensor>& tensors,
                                     const std::function<void(const at::Tensor&)>& reduce);
// In place.
void broadcast_small(Communicator& communicator, const std::vector<at::Tensor>& tensors, int from);

}  // namespace accel::comm
