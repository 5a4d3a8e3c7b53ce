// Clipping of gradients: one pass over all of them that measures, one that changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accel::optim {

// Scales the gradients so that their joint norm is at most max_norm, and
// returns the norm before: a scalar tensor on the gradients' device, so that
// who does not read it does not wait. norm_type is above 0; infinity is the
// largest element. Parameters without a gradient are left out; without any
// gradient the norm is 0.
at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0);

// What gradients of a norm are multiplied with: 1 when the norm is within the limit.
double clip_factor(double norm, double max_norm);

// Cuts each element to [-clip_value, clip_value].
void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value);

}  // namespace accel::optim
