// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gradient_reduction.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "comm/collective.hpp"

namespace accel::parallel {

GradientReduction::GradientReduction(const std::vector<std::unique_ptr<ShardedParameter>>& parameters,
                                     const MixedPrecisionPolicy& policy, const ModelRanks& ranks)
    : parameters_(parameters), policy_(policy), ranks_(ranks), arrived_(parameters.size(), false) {
  for (const auto& parameter : parameters) num_trained_ += parameter->is_trained() ? 1 : 0;
}

void GradientReduction::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  arrived_.assign(parameters_.size(), false);
  num_arrived_ = 0;
  num_trained_ = 0;
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    num_trained_ += 1;
    parameter->gradient().begin_backward();
  }
}

void GradientReduction::watch(const std::function<void(size_t index)>& arrived) {
  for (size_t i = 0; i < parameters_.size(); i++) parameters_[i]->watch_gradient([arrived, i] { arrived(i); });
}

bool GradientReduction::note_arrival(size_t index) {
  if (arrived_[index]) return false;
  arrived_[index] = true;
  num_arrived_ += 1;
  return all_arrived();
}

void GradientReduction::start_reduce(double factor) {
  const at::NoGradGuard no_grad;
  factor_ = factor;
  std::vector<comm::Collective> collectives;
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    at::Tensor gradient = parameter->gradient().take_whole();
    if (!gradient.defined()) continue;  // the same on all ranks: the loss does not depend on it
    gradient = gradient.to(policy_.reduce_dtype.value_or(parameter->layout().compute_dtype())).contiguous().view({-1});
    if (gradient.numel() != parameter->layout().padded_elements()) {
      at::Tensor padded = at::empty({parameter->layout().padded_elements()}, gradient.options());
      padded.narrow(0, 0, gradient.numel()).copy_(gradient);
      padded.narrow(0, gradient.numel(), padded.numel() - gradient.numel()).zero_();
      gradient = std::move(padded);
    }
    at::Tensor shard = at::empty({parameter->layout().elements_per_rank()}, gradient.options());
    if (gradient.numel() > 0)
      collectives.push_back(comm::Collective::reduce_scatter(gradient, comm::ReduceOp::kMean, shard));
    reduced_.push_back({parameter.get(), std::move(gradient), std::move(shard)});
  }
  if (collectives.empty()) return;
  reducing_ = ranks_.shard->start(collectives);
}

void GradientReduction::finish_reduce() {
  const at::NoGradGuard no_grad;
  if (const auto reducing = std::exchange(reducing_, nullptr)) reducing->synchronize();
  if (ranks_.replicate != nullptr && ranks_.replicate->size() > 1 && !reduced_.empty()) {
    std::vector<comm::Collective> collectives;
    for (const Reduced& reduced : reduced_)
      if (reduced.shard.numel() > 0)
        collectives.push_back(comm::Collective::all_reduce(reduced.shard, comm::ReduceOp::kMean));
    ranks_.replicate->run(collectives);
  }
  sum_terms();
  for (const Reduced& reduced : std::exchange(reduced_, {})) {
    const at::Tensor& shard = reduced.parameter->shard();
    if (const double factor = factor_ * ranks_.gradient_scale; factor != 1) reduced.shard.mul_(factor);
    reduced.parameter->gradient().end_backward(reduced.shard.narrow(0, 0, shard.numel()).view(shard.sizes()));
  }
  for (const auto& parameter : parameters_)
    if (parameter->is_trained()) parameter->gradient().end_backward({});
  in_backward_ = false;
}

void GradientReduction::sum_terms() const {
  std::vector<comm::Collective> collectives;
  for (const Reduced& reduced : reduced_)
    if (reduced.parameter->gradient().is_summed() && reduced.shard.numel() > 0)
      collectives.push_back(comm::Collective::all_reduce(reduced.shard, comm::ReduceOp::kSum));
  if (!collectives.empty()) ranks_.tensor->run(collectives);
}

void GradientReduction::keep_gradients() {
  for (const auto& parameter : parameters_) {
    if (!parameter->is_trained()) continue;
    at::Tensor gradient = parameter->gradient().take_whole();
    parameter->gradient().end_backward({});
    if (gradient.defined()) parameter->gradient().keep_whole(std::move(gradient));
  }
  in_backward_ = false;
}

void GradientReduction::drop_gradients() {
  if (const auto reducing = std::exchange(reducing_, nullptr)) reducing->wait();
  reduced_.clear();
  for (const auto& parameter : parameters_) parameter->gradient().drop_whole();
  in_backward_ = false;
}

bool GradientReduction::has_pending_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const auto& parameter) { return parameter->gradient().kept_whole().defined(); });
}

}  // namespace accel::parallel
