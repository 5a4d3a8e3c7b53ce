// Foreach update: the update kernels of the optimizers on lists of tensors, for devices without kernels of our own.
// Each operation is one call of LibTorch's _foreach functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/update/update_arguments.hpp"

namespace accel::kernels {

struct ForeachUpdate {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> states[kMaxStates];
  std::vector<at::Scalar> scalars[kNumScalars];  // of each parameter

  void add_scalars(const double (&of_parameter)[kNumScalars]) {
    for (int i = 0; i < kNumScalars; ++i) scalars[i].emplace_back(of_parameter[i]);
  }
};

// In place. All tensors are on one device and of one dtype.
void update(UpdateKernel kernel, const ForeachUpdate& lists);

}  // namespace accel::kernels
