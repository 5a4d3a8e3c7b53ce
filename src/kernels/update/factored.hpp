// Adafactor's factored second moment (Shazeer, Stern, 2018): the squares of a gradient matrix are estimated from the
// means of its rows and columns. The full matrix of estimates is never stored.
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

// The mean squares of the gradient's rows and columns; the sum of the parameter's squares is returned.
double mean_squares(const FactoredMatrix& matrix, float* rows, float* columns);
// The sum of the squares of gradient * estimate.
double step_squares(const FactoredMatrix& matrix);
// parameter = parameter * keep - gradient * estimate * rate
void take_step(const FactoredMatrix& matrix, float keep, float rate);

}  // namespace accel::kernels
