#include "nn/layers/conv1d.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>

namespace accel::nn {

Conv1d::Conv1d(at::Tensor weight, at::Tensor bias) : Module("Conv1D") {
  add_parameter("weight", std::move(weight));
  add_parameter("bias", std::move(bias));
}

c10::IValue Conv1d::forward(const Inputs& inputs) {
  const at::Tensor& input = only_tensor(inputs);
  const at::Tensor& weight = parameter(0);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(1);
  return at::addmm(parameter(1), input.reshape({-1, weight.size(0)}), weight).view(sizes);
}

}  // namespace accel::nn
