// SPDX-License-Identifier: Apache-2.0
#include "optim/rules/rounding.hpp"

#include "kernels/update/elementwise.hpp"

namespace accel::optim {

void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint32_t seed) {
  kernels::ElementSpan target = kernels::span_of(to);
  target.stochastic_rounding = true;
  kernels::copy(kernels::span_of(from), target, from.numel(), seed);
}

}  // namespace accel::optim
