// SPDX-License-Identifier: Apache-2.0
// Synchronization of module states: gives all ranks the same parameters and buffers, as DDP does at its start.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// Collective: checks that all ranks have the same tensors, and broadcasts rank 0's parameters and buffers.
void sync_module_states(const nn::Module& module, comm::Communicator& communicator);

// Collective: throws if the ranks have other parameters or buffers, by name, dtype and shape.
void check_same_model(const nn::Module& module, comm::Communicator& communicator);

// Collective: broadcasts one rank's tensors.
void broadcast_tensors(const std::vector<at::Tensor>& tensors, int from, comm::Communicator& communicator);
// Without parameters of which each rank has a shard.
void broadcast_model(const ParallelModel& model, int from, comm::Communicator& communicator);

}  // namespace accel::parallel
