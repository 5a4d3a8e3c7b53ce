// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/conv1d.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace accel::nn {

Conv1d::Conv1d(at::Tensor weight, at::Tensor bias) : Projection("Conv1D", 1, true) {
  add_parameter("weight", std::move(weight));
  add_parameter("bias", std::move(bias));
}

c10::IValue Conv1d::forward(const Inputs& inputs) { return project(only_tensor(inputs)); }

}  // namespace accel::nn
