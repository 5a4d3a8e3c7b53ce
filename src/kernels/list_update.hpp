// The formulas of the optimizers on lists of tensors, for devices without kernels of ours: each operation is one call
// of LibTorch for the whole list.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/update_job.hpp"

namespace accel::kernels {

struct ListUpdate {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> states[kMostStates];
  std::vector<at::Scalar> numbers[kNumNumbers];  // of each parameter

  void add_numbers(const double (&of_parameter)[kNumNumbers]) {
    for (int i = 0; i < kNumNumbers; ++i) numbers[i].emplace_back(of_parameter[i]);
  }
};

// In place. All tensors are on one device and of one dtype.
void update(Formula formula, const ListUpdate& lists);

}  // namespace accel::kernels
