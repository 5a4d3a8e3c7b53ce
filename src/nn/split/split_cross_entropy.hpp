// SPDX-License-Identifier: Apache-2.0
// Cross entropy over split classes: LibTorch's cross_entropy_loss of scores of which each rank has some classes. One
// collective in the forward, of three numbers a row, or four with label smoothing; none in the backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "nn/split/split_classes.hpp"

namespace accel::nn {

// Scores [classes of this rank], [rows, classes] or [rows, classes, ...], and targets among all classes, equal on all
// ranks, as LibTorch's operator takes them of all classes. `reduction` is an at::Reduction. The loss is equal on all
// ranks, bit by bit.
at::Tensor split_cross_entropy(const at::Tensor& scores, const at::Tensor& target,
                               const std::optional<at::Tensor>& class_weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, const SplitClassesPtr& classes);

}  // namespace accel::nn
