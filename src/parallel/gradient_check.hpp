// SPDX-License-Identifier: Apache-2.0
// Gradient check: finds parameters that ranks along an axis of the mesh store as a whole, although each rank computes
// only its part of their gradient.
#pragma once

#include "comm/communicator.hpp"
#include "nn/module.hpp"

namespace accel::parallel {

// Collective among the ranks, which have parts of the model along `axis`. A COLLECTIVE_MISMATCH names the parameters
// whose gradients differ. False: there are no finite gradients yet.
bool check_equal_gradients(const nn::Module& module, const std::string& axis, comm::Communicator& ranks);

}  // namespace accel::parallel
