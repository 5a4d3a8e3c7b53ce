// SPDX-License-Identifier: Apache-2.0
// Adafactor's factored second moment (Shazeer, Stern, 2018): the squares of a gradient matrix are estimated from the
// means of its rows and columns. The full matrix of estimates is never stored.
#pragma once

#include "kernels/update/factored_matrix.hpp"

namespace accel::kernels {

// The mean squares of the gradient's rows and columns; the sum of the parameter's squares is returned.
double mean_squares(const FactoredMatrix& matrix, float* rows, float* columns);
// The sum of the squares of gradient * estimate.
double step_squares(const FactoredMatrix& matrix);
// parameter = parameter * keep - gradient * estimate * rate
void take_step(const FactoredMatrix& matrix, float keep, float rate);

}  // namespace accel::kernels
