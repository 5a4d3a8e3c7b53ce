// SPDX-License-Identifier: Apache-2.0
// Coalescing of small tensors: those of a tree are sent as one message for each operation and, if reduced, dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Up to the size at which bandwidth matters more than latency.
bool is_small(const at::Tensor& tensor);

// The collectives for the small tensors of a call, and their results. The first collective compares the shapes.
struct SmallTensors {
  std::vector<Collective> collectives;
  // Ends the round in which they are posted. If ranks disagree, `error` says what this rank has. Null if there are no
  // collectives.
  std::function<std::vector<at::Tensor>(const std::exception_ptr& error)> finish;
};

// All take contiguous small tensors, except reduce_small(), which takes any.

// Concatenates the tensors of all ranks along dimension 0.
SmallTensors gather_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors);
// Returns new tensors. Tensors of one dtype are concatenated, and reduced in place by `reduce` and then `finish`.
SmallTensors reduce_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors,
                          const std::function<Collective(const at::Tensor&)>& reduce,
                          const std::function<void(const at::Tensor&)>& finish);
// In place.
SmallTensors broadcast_small(const Communicator& communicator, const std::vector<at::Tensor>& tensors, int from);

}  // namespace accel::comm
