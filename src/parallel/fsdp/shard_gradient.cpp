// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/shard_gradient.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

namespace accel::parallel {

void ShardGradient::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  shard_ = std::exchange(parameter_.mutable_grad(), std::move(whole_));
  whole_.reset();
}

at::Tensor ShardGradient::take_whole() { return std::exchange(parameter_.mutable_grad(), at::Tensor()); }

void ShardGradient::add_zeros() {
  const at::NoGradGuard no_grad;
  if (!parameter_.grad().defined()) parameter_.mutable_grad() = at::zeros_like(parameter_);
}

void ShardGradient::drop_whole() {
  whole_.reset();
  end_backward({});
}

void ShardGradient::end_backward(const at::Tensor& of_shard) {
  if (!std::exchange(in_backward_, false)) return;
  at::Tensor gradient = std::move(shard_);
  shard_.reset();
  if (of_shard.defined()) {
    const at::NoGradGuard no_grad;
    if (gradient.defined())
      gradient.add_(of_shard.to(gradient.options()));
    else if (memory_.defined())
      gradient = memory_.copy_(of_shard);
    else
      gradient = of_shard.to(options_);
  }
  parameter_.mutable_grad() = std::move(gradient);
}

}  // namespace accel::parallel
