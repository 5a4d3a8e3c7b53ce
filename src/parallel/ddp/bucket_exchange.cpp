#include "parallel/ddp/bucket_exchange.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <utility>

namespace accel::parallel {

BucketExchange::BucketExchange(std::vector<at::Tensor> parameters, bool as_bucket_view, CommunicatorPtr communicator,
                               CommHookPtr hook)
    : parameters_(std::move(parameters)),
      as_bucket_view_(as_bucket_view),
      communicator_(std::move(communicator)),
      hook_(std::move(hook)) {}

BucketExchange::~BucketExchange() = default;

// Gradients keep the memory of the former buffer, which otherwise is free before that of the new one is taken.
void BucketExchange::set_order(const BucketOrder& order) {
  const at::NoGradGuard no_grad;
  order_ = order;
  buffer_ = {};
  buffer_ = GradientBuffer(parameters_, order_, GradientLayout::kPacked, *communicator_);
  exchanged_.assign(buffer_.buckets().size(), nullptr);
  if (!as_bucket_view_) return;
  for (size_t number = 0; number < parameters_.size(); number++) {
    at::Tensor& gradient = parameters_[number].mutable_grad();
    if (!gradient.defined()) continue;
    buffer_.gradient(number).copy_(gradient);
    gradient = buffer_.gradient(number);
  }
}

// Autograd records the copy of a gradient with a graph.
void BucketExchange::add(size_t number) {
  at::Tensor& gradient = parameters_[number].mutable_grad();
  const at::Tensor& memory = buffer_.gradient(number);
  if (!gradient.defined()) {
    memory.zero_();
  } else if (!gradient.is_alias_of(memory)) {
    memory.copy_(gradient);
    if (as_bucket_view_) gradient = memory;
  }
  buffer_.set_ready(number);
}

c10d::GradBucket BucketExchange::grad_bucket(size_t index, at::Tensor memory) const {
  const GradientBuffer::Bucket& bucket = buffer_.buckets()[index];
  std::vector<size_t> lengths;
  std::vector<c10::IntArrayRef> sizes;
  std::vector<at::Tensor> parameters;
  for (const size_t number : bucket.gradients) {
    const at::Tensor& parameter = parameters.emplace_back(parameters_[number]);
    lengths.push_back(static_cast<size_t>(parameter.numel()));
    sizes.push_back(parameter.sizes());
  }
  return c10d::GradBucket(index, buffer_.buckets().size(), std::move(memory), bucket.offsets, std::move(lengths),
                          std::move(sizes), std::move(parameters), std::nullopt);
}

void BucketExchange::start_complete() {
  while (const auto complete = buffer_.take_complete()) {
    c10d::GradBucket bucket = grad_bucket(*complete, buffer_.buckets()[*complete].memory);
    exchanged_[*complete] = hook_->runHook(bucket);
  }
}

void BucketExchange::finish(const std::function<bool(size_t number)>& is_used) {
  for (size_t i = 0; i < exchanged_.size(); i++) {
    const Future future = std::exchange(exchanged_[i], nullptr);
    future->waitAndThrow();
    const at::Tensor mean = hook_->parseHookResult(future->value());
    const GradientBuffer::Bucket& bucket = buffer_.buckets()[i];
    if (!mean.is_alias_of(bucket.memory)) bucket.memory.copy_(mean);
    for (const size_t number : bucket.gradients)
      if (is_used(number)) copy_from_bucket(number);
  }
}

void BucketExchange::copy_from_bucket(size_t number) {
  const at::Tensor& memory = buffer_.gradient(number);
  at::Tensor& gradient = parameters_[number].mutable_grad();
  if (as_bucket_view_) {
    gradient = memory;
  } else if (gradient.defined()) {
    gradient.copy_(memory);
  } else {
    gradient = at::empty_strided(memory.sizes(), memory.strides(), memory.options()).copy_(memory);
  }
}

void BucketExchange::start_zeros() {
  for (size_t i = 0; i < exchanged_.size(); i++) {
    c10d::GradBucket bucket = grad_bucket(i, at::zeros_like(buffer_.buckets()[i].memory));
    exchanged_[i] = hook_->runHook(bucket);
  }
}

void BucketExchange::finish_zeros() {
  for (Future& exchanged : exchanged_) {
    const Future future = std::exchange(exchanged, nullptr);
    future->waitAndThrow();
    hook_->parseHookResult(future->value());  // hooks may have collectives there too
  }
}

}  // namespace accel::parallel
