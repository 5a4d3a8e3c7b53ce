// SPDX-License-Identifier: Apache-2.0
// GELU (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415) and its backward, exact and by tanh. The source is
// compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

enum class GeluApproximation : uint8_t { kNone, kTanh };

struct GeluKernels {
  // Elements [first, last) of float32, bfloat16 or float16, computed in float32. Spans have one format.
  void (*forward)(GeluApproximation approximation, const ElementSpan& input, const ElementSpan& output, int64_t first,
                  int64_t last);
  void (*backward)(GeluApproximation approximation, const ElementSpan& input, const ElementSpan& output_gradient,
                   const ElementSpan& input_gradient, int64_t first, int64_t last);
};

namespace baseline {
GeluKernels gelu_kernels();
}
namespace avx2 {
GeluKernels gelu_kernels();
}
namespace avx512 {
GeluKernels gelu_kernels();
}

}  // namespace accel::kernels
