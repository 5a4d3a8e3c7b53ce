// Stochastic rounding (Gupta et al., 2015): up or down with the probability of the distance, so that many steps that
// are smaller than half a unit in the last place do not vanish.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::optim {

// The seed of the noise of a parameter in a step; it differs from that of every other by much more than their elements.
inline uint32_t noise_seed(double step, size_t parameter) {
  return static_cast<uint32_t>(step) * 0xc2b2ae35u + static_cast<uint32_t>(parameter) * 0x85ebca6bu;
}

// float32 into bfloat16 of the same shape and memory order. On the CPU the noise is that of `seed` and of the place; on
// other devices it comes from the device's default generator.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint32_t seed);

}  // namespace accel::optim
