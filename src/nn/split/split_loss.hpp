// SPDX-License-Identifier: Apache-2.0
// The targets that count in a mean loss over split sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace accel::nn {

// The divisor of the mean of a cross entropy, for the SplitSequence: the number of targets but `ignore_index`, or
// the sum of their classes' weights.
at::Tensor counted_targets(const at::Tensor& target, const std::optional<at::Tensor>& class_weight,
                           int64_t ignore_index);

}  // namespace accel::nn
