// SPDX-License-Identifier: Apache-2.0
// Adafactor on a device: updates of lists, with a few launches for each shape of matrices and for all parameters
// together.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accel::optim {

// All tensors have one dtype, of which norms are exact enough: not half precision.
struct ForeachAdafactor {
  std::vector<at::Tensor> parameters;  // the matrices first, those of one shape together
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> rows, columns;  // the second moments of the matrices
  std::vector<at::Tensor> variances;      // and those of the others
  std::vector<at::Scalar> shares;         // of this step in the second moment, for each parameter
  std::vector<at::Scalar> rates;          // of each parameter
  at::Tensor numbers;                     // on the device, in place of them: the shares, the rates times d, and `keep`
  double eps1, eps2, d;
  double keep;  // of a parameter, by weight decay
  bool decays;  // whether there is any
};

void update(const ForeachAdafactor& lists);

}  // namespace accel::optim
