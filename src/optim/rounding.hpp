// Stochastic rounding (Gupta et al., 2015): up or down with the probability of the distance, so that many steps that
// are smaller than half a unit in the last place do not vanish.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::optim {

// float32 into bfloat16 of the same shape and memory order. On the CPU the noise is that of `seed` and of the place; on
// other devices it comes from the device's default generator.
void round_by_chance(const at::Tensor& from, const at::Tensor& to, uint32_t seed);

}  // namespace accel::optim
