#include "optim/rules/rounding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>

#include "kernels/update/elementwise.hpp"

namespace accel::optim {

void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint32_t seed) {
  if (from.is_cpu()) {
    kernels::ElementSpan target = kernels::span_of(to);
    target.stochastic_rounding = true;
    kernels::copy(kernels::span_of(from), target, from.numel(), seed);
    return;
  }
  constexpr int64_t kCut = 1 << 16;  // what bfloat16 lacks of float32's last bits
  const at::Tensor bits = from.view(at::kInt);
  const at::Tensor up = bits + at::randint(kCut, bits.sizes(), bits.options());
  const at::Tensor rounded = up.bitwise_and(-kCut).view(at::kFloat);
  to.copy_(at::where(from.isfinite(), rounded, from));
}

}  // namespace accel::optim
