// The kernels themselves. Their sources are compiled once for each instruction set, each time into a namespace of its
// own, from which elementwise.cpp picks. All copies give the same bits: nothing is contracted or reordered.
#pragma once

#include "kernels/update_job.hpp"

namespace accel::kernels {

enum class Norm : uint8_t { kSum, kSquares, kLargest };  // of magnitudes

// Blocks [first, last) of a tensor.
using UpdateKernel = void (*)(const UpdateJob& job, int64_t first, int64_t last);
// One number a block.
using NormKernel = void (*)(const Stream& stream, int64_t count, int64_t first, int64_t last, double* results);
// In place: x * factor, then cut to [-limit, limit].
using ScaleKernel = void (*)(const Stream& stream, int64_t count, int64_t first, int64_t last, double factor,
                             double limit);
// From one format to another.
using CopyKernel = void (*)(const Stream& from, const Stream& to, int64_t count, int64_t first, int64_t last,
                            uint32_t seed);

struct Kernels {
  UpdateKernel (*find_update)(Formula formula, Format parameter);
  NormKernel (*find_norm)(Norm norm, Format format);
  ScaleKernel (*find_scale)(Format format);
  CopyKernel copy;  // not of double
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
