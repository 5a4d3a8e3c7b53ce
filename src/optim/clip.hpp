// SPDX-License-Identifier: Apache-2.0
// Gradient clipping, by norm and by value.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace accel::optim {

// Scales the gradients so that their joint norm is at most max_norm. Returns the norm before that as a scalar tensor on
// the gradients' device, so that callers that do not read it do not wait for the device. norm_type is above 0; infinity
// is the largest magnitude. Parameters without a gradient are skipped; without any gradient the norm is 0.
at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0);

// Clips gradients of which other ranks have others of the same norm. `counted` are those of this rank that are in it,
// and `copies` are counted by another rank. `combine` returns the sum over the ranks of a scalar tensor, or the
// largest.
using CombineNorms = std::function<at::Tensor(const at::Tensor& partial, bool largest)>;
at::Tensor clip_shared_gradients_by_norm(const std::vector<at::Tensor>& counted, const std::vector<at::Tensor>& copies,
                                         double max_norm, double norm_type, const CombineNorms& combine);

// The factor for gradients of a norm: 1 if the norm is within the limit.
double clip_factor(double norm, double max_norm);
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);  // on the device of the norm

// Clamps each element to [-clip_value, clip_value].
void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace accel::optim
