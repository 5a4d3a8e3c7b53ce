// SPDX-License-Identifier: Apache-2.0
// Seeding of random generators, and their synchronization over the ranks. @accelerate utils.random
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"

namespace accel::state {

// Seeds the default generators of the CPU and of all accelerators of the process.
void set_seed_of_default_generators(uint64_t seed);
// Gives the latest seed to the generators of an accelerator that was not there when it was set.
void seed_late_accelerator(c10::Device device);

// Turns on deterministic algorithms for the process.
void use_deterministic_algorithms();

// Throws unless the type is "torch", "generator" or the kind of the device; "generator" requires `has_generator`.
void check_rng_types(const std::string& types, c10::Device device, bool has_generator);

// Broadcasts rank 0's states. `types` are separated by commas; `generator` may be undefined unless it is one of them.
void synchronize_rng_states(comm::Communicator& communicator, c10::Device device, const std::string& types,
                            const at::Generator& generator);

}  // namespace accel::state
