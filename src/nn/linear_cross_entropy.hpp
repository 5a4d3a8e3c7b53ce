// SPDX-License-Identifier: Apache-2.0
// The operator accel::linear_cross_entropy: checks arguments, and adds autograd and autocast to the kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::nn {

// The names are those of torch.nn.functional.linear_cross_entropy. `chunk_size` is the number of rows whose scores
// exist at a time; 0: chosen by the number of classes.
inline constexpr const char* kLinearCrossEntropySchema =
    "linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor target, *, Tensor? linear_bias=None, "
    "Tensor? weight=None, str reduction='mean', int ignore_index=-100, float label_smoothing=0.0, int chunk_size=0) "
    "-> Tensor";

// cross_entropy(linear(input, linear_weight, linear_bias), target, ...) of input [..., features] and target [...],
// without storing all scores. The loss is float32, or float64 if the input is. The mean
// in a scope of a split sequence is that over the parts of all ranks. With a weight of split classes
// (split_classes.hpp) targets and class weights are those of all classes, and the ranks compute the loss together.
at::Tensor linear_cross_entropy(const at::Tensor& given_input, const at::Tensor& linear_weight,
                                const at::Tensor& target, const std::optional<at::Tensor>& linear_bias,
                                const std::optional<at::Tensor>& weight, std::string_view reduction,
                                int64_t ignore_index, double label_smoothing, int64_t chunk_size);

}  // namespace accel::nn
