// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/linear.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/initial.hpp"

namespace accel::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool bias) : Projection("Linear", 0, bias) {
  check_size(in_features, "in_features");
  check_size(out_features, "out_features");
  add_parameter("weight", at::empty({out_features, in_features}, new_parameter_options()));
  fill_kaiming_uniform(parameter(0));
  if (!bias) return;
  add_parameter("bias", at::empty({out_features}, new_parameter_options()));
  fill_bias_uniform(parameter(1), parameter(0));
}

Linear::Linear(at::Tensor weight, at::Tensor bias) : Projection("Linear", 0, bias.defined()) {
  add_parameter("weight", std::move(weight));
  if (has_bias()) add_parameter("bias", std::move(bias));
}

c10::IValue Linear::forward(const Inputs& inputs) { return project(only_tensor(inputs)); }

}  // namespace accel::nn
