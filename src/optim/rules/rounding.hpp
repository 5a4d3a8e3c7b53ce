// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding (Gupta et al., 2015): rounds up or down with a probability given by the distance, so that many
// steps below half a unit in the last place are not lost.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::optim {

// The seed for a parameter in a step; any two differ by much more than the number of elements of a parameter.
inline uint32_t noise_seed(double step, size_t parameter) {
  return static_cast<uint32_t>(step) * 0xc2b2ae35u + static_cast<uint32_t>(parameter) * 0x85ebca6bu;
}

// float32 into bfloat16 of the same shape and memory order, on the CPU. The noise depends on `seed` and the index.
// Other devices have kernels/update/tensor_lists.hpp.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint32_t seed);

}  // namespace accel::optim
