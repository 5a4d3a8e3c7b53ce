// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels: optimizer updates, norms, scaling and conversion. Their source is compiled once for each
// instruction set, each time into a namespace of its own; elementwise.cpp chooses one at run time. All copies compute
// the same bits: multiply-adds are not contracted and sums not reordered.
#pragma once

#include "kernels/update/update_arguments.hpp"

namespace accel::kernels {

enum class Norm : uint8_t { kSum, kSquares, kLargest };  // of magnitudes

// Blocks [first, last) of a tensor.
using UpdateFunction = void (*)(const UpdateArguments& arguments, int64_t first, int64_t last);
// Writes one result per block.
using NormKernel = void (*)(const ElementSpan& span, int64_t count, int64_t first, int64_t last, double* results);
// In place: x * factor, clamped to [-limit, limit].
using ScaleKernel = void (*)(const ElementSpan& span, int64_t count, int64_t first, int64_t last, double factor,
                             double limit);
// Converts from one format to another.
using CopyKernel = void (*)(const ElementSpan& from, const ElementSpan& to, int64_t count, int64_t first, int64_t last,
                            uint32_t seed);

struct Kernels {
  UpdateFunction (*find_update)(UpdateKernel kernel, Format parameter);
  NormKernel (*find_norm)(Norm norm, Format format);
  ScaleKernel (*find_scale)(Format format);
  CopyKernel copy;  // not for double
};

namespace baseline {
Kernels kernels();
}
namespace avx2 {
Kernels kernels();
}
namespace avx512 {
Kernels kernels();
}

}  // namespace accel::kernels
