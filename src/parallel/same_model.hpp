// The same model on every rank, as data parallelism needs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"

namespace accel::parallel {

// Collective: checks that all ranks have the same tensors, and gives them rank 0's parameters and buffers.
void start_alike(const nn::Module& module, comm::Communicator& communicator);

void broadcast_from_main(const std::vector<at::Tensor>& tensors, comm::Communicator& communicator);

}  // namespace accel::parallel
