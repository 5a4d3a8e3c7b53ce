// SPDX-License-Identifier: Apache-2.0
// Root mean square norm of the last axis in one pass on the CPU, for calls that need no gradient. LibTorch composes it
// of eight operators, which take longer than the numbers of a token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::kernels {

enum class NormWeight : uint8_t {
  kPlain,
  kRoundedBefore,  // what it multiplies is rounded to the dtype first
  kAddsOne,        // 1 is added to it in float32
};

// Whether rms_norm() takes them: float32, bfloat16 or float16 of one dtype, dense, on the CPU, without gradients.
bool can_rms_norm(const at::Tensor& input, const at::Tensor& weight);

// input / sqrt(mean(input^2) + epsilon) * weight, in float32 and rounded as NormWeight says. `weight` is [size].
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon, NormWeight kind);

}  // namespace accel::kernels
