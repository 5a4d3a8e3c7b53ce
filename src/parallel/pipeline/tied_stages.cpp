// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/tied_stages.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "comm/communicator.hpp"

namespace accel::parallel {

TiedStages::TiedStages(std::vector<TiedCopy> ties) : ties_(std::move(ties)) {
  const at::NoGradGuard no_grad;
  for (const TiedCopy& tie : ties_)
    if (!tie.parameter.is_meta()) tie.ranks->broadcast(tie.parameter.detach(), /*from=*/0);
}

// The sum of the next step counts a former one once.
void TiedStages::begin_step() {
  if (!are_summed_) return;
  are_summed_ = false;
  const at::NoGradGuard no_grad;
  for (const TiedCopy& tie : ties_)
    if (tie.ranks->rank() > 0 && tie.parameter.grad().defined()) tie.parameter.mutable_grad().zero_();
}

void TiedStages::sum_gradients() {
  const at::NoGradGuard no_grad;
  for (const TiedCopy& tie : ties_) {
    if (!tie.parameter.requires_grad()) continue;
    at::Tensor& gradient = tie.parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(tie.parameter.detach());
    tie.ranks->all_reduce(gradient, comm::ReduceOp::kSum);
  }
  are_summed_ = true;
}

}  // namespace accel::parallel
