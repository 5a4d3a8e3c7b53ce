// The same model on every rank, as data parallelism needs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"

namespace accel::parallel {

// Collective: checks that all ranks have the same tensors, and gives them rank 0's parameters and buffers.
void start_alike(const nn::Module& module, comm::Communicator& communicator);

// Collective: one rank's tensors for all.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, int from, comm::Communicator& communicator);
void broadcast_model(const nn::Module& module, int from, comm::Communicator& communicator);

}  // namespace accel::parallel
