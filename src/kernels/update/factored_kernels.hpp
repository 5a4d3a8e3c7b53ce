// SPDX-License-Identifier: Apache-2.0
// The kernels of factored.hpp; their source is compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/factored_matrix.hpp"

namespace accel::kernels {

struct FactoredKernels {
  // Measures one group of rows: sums of the squares of each row, of each column, and of the parameter.
  double (*measure)(const FactoredMatrix& matrix, int64_t group, double* rows, float* columns);
  double (*step_squares)(const FactoredMatrix& matrix, int64_t group);
  void (*take_step)(const FactoredMatrix& matrix, int64_t group, float keep, float rate);
};

namespace baseline {
FactoredKernels factored_kernels();
}
namespace avx2 {
FactoredKernels factored_kernels();
}
namespace avx512 {
FactoredKernels factored_kernels();
}

}  // namespace accel::kernels
