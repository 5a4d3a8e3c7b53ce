// SPDX-License-Identifier: Apache-2.0
// Key buffer: memory with room behind the keys or values of earlier tokens, so that a model that generates does not
// copy them for each token.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::nn {

// The positions of `added` behind those of `earlier`, both [batch, heads, length, size]. Without gradients they are
// written into room behind `earlier`, if it has some and no other positions are there: `earlier` stays as it is, and
// can be continued several times.
at::Tensor append_positions(const at::Tensor& earlier, const at::Tensor& added);

}  // namespace accel::nn
