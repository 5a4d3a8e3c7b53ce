// SPDX-License-Identifier: Apache-2.0
// Random generators of devices, and their states as tensors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace accel::tensor {

at::Generator default_generator(c10::Device device);
bool has_default_generator(c10::Device device);
at::Generator new_generator(uint64_t seed, c10::Device device);
void set_seed(at::Generator& generator, uint64_t seed);

// Bytes on the CPU, as torch.Generator.get_state() returns them.
at::Tensor generator_state(const at::Generator& generator);
void set_generator_state(at::Generator& generator, const at::Tensor& state);

}  // namespace accel::tensor
