// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/router_loss.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

namespace accel::nn {

at::Tensor router_loss(const std::vector<at::Tensor>& scores, int64_t per_token, const at::Tensor& mask) {
  at::Tensor counted;  // [tokens, 1]
  if (mask.defined()) {
    const int64_t length = scores[0].size(0) / mask.size(0);
    counted = mask.slice(1, mask.size(1) - length).reshape({-1, 1}).to(at::kFloat);
  }
  at::Tensor chosen, probabilities;
  const auto add = [](at::Tensor& sum, const at::Tensor& term) { sum = sum.defined() ? sum + term : term; };
  for (const at::Tensor& of_layer : scores) {
    const at::Tensor shares = at::softmax(of_layer, -1);
    const at::Tensor choice = std::get<1>(at::topk(shares.detach(), per_token));
    at::Tensor marks = at::zeros_like(shares, shares.options().dtype(at::kFloat).requires_grad(false));
    marks = marks.scatter(1, choice, 1.0);
    add(chosen, (counted.defined() ? marks * counted : marks).sum(0));
    add(probabilities, (counted.defined() ? shares.to(at::kFloat) * counted : shares.to(at::kFloat)).sum(0));
  }
  const at::Tensor rows = chosen.sum() / static_cast<double>(per_token);
  return (chosen / rows * (probabilities / rows)).sum() * scores[0].size(1);
}

}  // namespace accel::nn
