// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/convolution.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/initial.hpp"

namespace accel::nn {

namespace {

void check_shape(const Conv2dShape& shape) {
  check_size(shape.in_channels, "in_channels");
  check_size(shape.out_channels, "out_channels");
  check_size(shape.kernel, "kernel");
  check_size(shape.stride, "stride");
  check_size(shape.groups, "groups");
  require(shape.kernel_width >= 0 && shape.stride_width >= 0, Status::kInvalidArgument, "the width of a kernel is ",
          shape.kernel_width, " and that of its stride ", shape.stride_width, "; expected 0 or more");
  require(shape.padding >= 0, Status::kInvalidArgument, "padding is ", shape.padding, "; expected 0 or more");
  require(shape.in_channels % shape.groups == 0 && shape.out_channels % shape.groups == 0, Status::kInvalidArgument,
          "groups is ", shape.groups, "; expected a divisor of in_channels ", shape.in_channels, " and out_channels ",
          shape.out_channels);
}

at::Tensor new_kernel(const Conv2dShape& shape, size_t dimensions) {
  std::vector<int64_t> sizes{shape.out_channels, shape.in_channels / shape.groups};
  sizes.insert(sizes.end(), dimensions, shape.kernel);
  if (dimensions == 2 && shape.kernel_width > 0) sizes.back() = shape.kernel_width;
  const at::Tensor weight = at::empty(sizes, new_parameter_options());
  fill_kaiming_uniform(weight);
  return weight;
}

at::Tensor new_bias(const Conv2dShape& shape, const at::Tensor& weight) {
  const at::Tensor bias = at::empty({shape.out_channels}, new_parameter_options());
  fill_bias_uniform(bias, weight);
  return bias;
}

}  // namespace

Conv2d::Conv2d(const Conv2dShape& shape, bool bias) : Module("Conv2d"), shape_(shape), has_bias_(bias) {
  check_shape(shape);
  add_parameter("weight", new_kernel(shape, 2));
  if (bias) add_parameter("bias", new_bias(shape, parameter(0)));
}

c10::IValue Conv2d::forward(const Inputs& inputs) {
  return at::conv2d(only_tensor(inputs), parameter(0), has_bias_ ? parameter(1) : at::Tensor(),
                    {shape_.stride, shape_.stride_width > 0 ? shape_.stride_width : shape_.stride},
                    {shape_.padding, shape_.padding}, {1, 1}, shape_.groups);
}

SequenceConvolution::SequenceConvolution(const Conv2dShape& shape, bool bias)
    : Module("Conv1d"), shape_(shape), has_bias_(bias) {
  check_shape(shape);
  add_parameter("weight", new_kernel(shape, 1));
  if (bias) add_parameter("bias", new_bias(shape, parameter(0)));
}

c10::IValue SequenceConvolution::forward(const Inputs& inputs) {
  return at::conv1d(only_tensor(inputs), parameter(0), has_bias_ ? parameter(1) : at::Tensor(), {shape_.stride},
                    {shape_.padding}, {1}, shape_.groups);
}

}  // namespace accel::nn
