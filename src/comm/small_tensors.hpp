// The small tensors of a tree travel as one message.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"

namespace accel::comm {

// Up to the size at which bytes count for more than messages.
bool is_small(const at::Tensor& tensor);

// Of contiguous small tensors with a dimension 0: those of all ranks, each joined along it. The error of ranks that
// disagree says what this rank has.
std::vector<at::Tensor> gather_small(Communicator& communicator, const std::vector<at::Tensor>& tensors);

}  // namespace accel::comm
