// SPDX-License-Identifier: Apache-2.0
// Router loss: the term of a loss that keeps experts equally busy (Fedus et al., "Switch Transformers", 2021, 2.2).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::nn {

// The number of experts times the sum over them of the share of tokens that chose one, `per_token` each, times its mean
// probability, over all layers together. `scores` are [tokens, experts] of each layer; `mask` [batch, length or more],
// true: a token counts, or undefined: all do.
at::Tensor router_loss(const std::vector<at::Tensor>& scores, int64_t per_token, const at::Tensor& mask);

}  // namespace accel::nn
