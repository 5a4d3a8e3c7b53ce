// SPDX-License-Identifier: Apache-2.0
// A matrix whose estimates of squares are products of a row's and a column's.
#pragma once

#include <cstdint>

namespace accel::kernels {

// Rows that a thread processes together. Sums are computed per group and added in order, so that they do not depend on
// the number of threads.
constexpr int64_t kRowGroup = 64;

// Row-major, on the CPU.
struct FactoredMatrix {
  const float* gradient = nullptr;
  float* parameter = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  // One over the root of the gradient's square is estimated as min(rows[i] * columns[j], most).
  const float* rows = nullptr;
  const float* columns = nullptr;
  float most = 0;

  int64_t groups() const { return (height + kRowGroup - 1) / kRowGroup; }
};

}  // namespace accel::kernels
