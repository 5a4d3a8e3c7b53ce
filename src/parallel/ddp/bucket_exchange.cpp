// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/bucket_exchange.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace accel::parallel {

BucketExchange::BucketExchange(std::vector<at::Tensor> parameters, GradientClasses classes, bool as_bucket_view,
                               std::vector<ClassExchange> exchanges)
    : parameters_(std::move(parameters)),
      classes_(std::move(classes)),
      as_bucket_view_(as_bucket_view),
      class_exchanges_(std::move(exchanges)) {}

void BucketExchange::set_hooks(const std::vector<CommHookPtr>& hooks) {
  for (size_t i = 0; i < hooks.size(); i++) class_exchanges_[i].hook = hooks[i];
}

// Gradients keep the memory of the former buffer, which otherwise is free before that of the new one is taken.
void BucketExchange::set_order(const BucketOrder& order) {
  const at::NoGradGuard no_grad;
  order_ = order;
  buffer_ = {};
  buffer_ = GradientBuffer(
      parameters_, order_, GradientLayout::kPacked,
      [this](size_t number) -> const comm::Communicator& { return *class_exchanges_[class_of(number)].ranks; });
  places_.clear();
  std::vector<size_t> counts(class_exchanges_.size(), 0);
  for (const GradientBuffer::Bucket& bucket : buffer_.buckets()) {
    const size_t of_class = class_of(bucket.gradients.front());
    places_.push_back({of_class, counts[of_class]++, false});
  }
  for (Place& place : places_) place.is_last = place.index + 1 == counts[place.of_class];
  exchanges_.assign(buffer_.buckets().size(), nullptr);
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

void BucketExchange::start(size_t index, at::Tensor memory) {
  const Place& place = places_[index];
  GradientBucket bucket{std::move(memory), place.index, place.is_last, {}};
  for (const size_t number : buffer_.buckets()[index].gradients) bucket.parameters.push_back(parameters_[number]);
  exchanges_[index] = class_exchanges_[place.of_class].hook->start(bucket);
}

void BucketExchange::start_complete() {
  while (const auto complete = buffer_.take_complete()) start(*complete, buffer_.buckets()[*complete].memory);
}

void BucketExchange::finish(const std::function<bool(size_t number)>& is_used) {
  for (size_t i = 0; i < exchanges_.size(); i++) {
    const CommHook::Finish finish_exchange = std::exchange(exchanges_[i], nullptr);
    finish_exchange();
    for (const size_t number : buffer_.buckets()[i].gradients)
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
  for (size_t i = 0; i < exchanges_.size(); i++) start(i, at::zeros_like(buffer_.buckets()[i].memory));
}

void BucketExchange::finish_zeros() {
  for (CommHook::Finish& exchange : exchanges_) {
    const CommHook::Finish finish_exchange = std::exchange(exchange, nullptr);
    finish_exchange();  // hooks may have collectives there too
  }
}

}  // namespace accel::parallel
