// Random generators: their states as tensors, seeding, and equal states on all ranks. @accelerate utils.random
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"

namespace accel::state {

at::Generator default_generator(c10::Device device);
at::Generator new_generator(uint64_t seed, c10::Device device);
void set_seed(at::Generator& generator, uint64_t seed);

// Bytes on the CPU, as torch.Generator.get_state() gives them.
at::Tensor generator_state(const at::Generator& generator);
void set_generator_state(at::Generator& generator, const at::Tensor& state);

// From now on the process uses algorithms whose results do not differ from run to run.
void use_deterministic_algorithms();

// Throws for a type that is no "torch", "cuda" or "generator", or that does not fit the device; `has_generator` says
// whether "generator" can be meant.
void check_rng_types(const std::string& types, c10::Device device, bool has_generator);

// Rank 0's states for all. `types` are joined by commas; `generator` may be undefined unless it is one of them.
void synchronize_rng_states(comm::Communicator& communicator, c10::Device device, const std::string& types,
                            const at::Generator& generator);

}  // namespace accel::state
