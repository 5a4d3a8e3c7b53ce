// SPDX-License-Identifier: Apache-2.0
// Foreach update: the update kernels of the optimizers on lists of tensors, for devices without kernels of our own.
// Each operation is one call of LibTorch's _foreach functions: the number of launches depends on the bytes of the lists
// alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <vector>

#include "kernels/update/update_arguments.hpp"

namespace accel::kernels {

// The lists of one step, which changes parameters and states in place. The tensors of a parameter have its memory
// order; all are on one device.
struct ForeachUpdate {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  // of one dtype, which may be another than that of the parameters
  std::vector<at::Tensor> states[kMaxStates];
  std::vector<at::Tensor> steps;                    // on the device, or none
  std::vector<at::Scalar> scalars[kNumScalars];     // of each parameter, or none
  std::vector<at::Tensor> rounded = {};             // these also receive the parameters, in their own dtype
  std::vector<at::Tensor> rounded_parameters = {};  // the parameter of each
  // On the device, in the dtype of the update, where all parameters share them; undefined: in scalars.
  std::array<at::Tensor, kNumScalars> device_scalars = {};
  bool stochastic_rounding = false;  // bfloat16 parameters are updated in float32, and so rounded

  void add_scalars(const double (&of_parameter)[kNumScalars]) {
    for (int i = 0; i < kNumScalars; ++i) scalars[i].emplace_back(of_parameter[i]);
  }
};

// Calls `update` for the lists, with parameters and gradients of one dtype. Where that takes lists that are not there,
// for casts and `num_temporary` ones of `update`, it is called for parts of the lists, so that those have 64 MiB at
// most.
void update_in_parts(const ForeachUpdate& lists, int num_temporary,
                     const std::function<void(const ForeachUpdate& part)>& update);

void update(UpdateKernel kernel, const ForeachUpdate& lists);

// Both halves of LAMB, with the scalars of the first one. The rate, which all parameters share, has yet to be
// multiplied by a ratio of norms.
void update_lamb(const ForeachUpdate& lists);

}  // namespace accel::kernels
