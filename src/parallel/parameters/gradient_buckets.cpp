// SPDX-License-Identifier: Apache-2.0
#include "parallel/parameters/gradient_buckets.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "parallel/sync_module_states.hpp"

namespace accel::parallel {

GradientBuckets::GradientBuckets(const nn::Module& module, std::shared_ptr<comm::Communicator> communicator,
                                 double bucket_cap_mb)
    : communicator_(std::move(communicator)) {
  const int64_t most_bytes = bucket_bytes(bucket_cap_mb);
  for (const auto& [name, parameter] : nn::named_parameters(module)) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  require(!parameters_.empty(), Status::kInvalidArgument,
          "the module has no trainable parameter; add those whose gradients are to be averaged");
  sync_module_states(module, *communicator_);
  const BucketOrder order = fill_buckets_backwards(parameters_, {most_bytes});
  buffer_ = GradientBuffer(parameters_, order, GradientLayout::kAligned, *communicator_);
  exchanged_.resize(order.size());
  for (size_t i = 0; i < size(); i++) parameters_[i].mutable_grad() = buffer_.gradient(i);
}

GradientBuckets::~GradientBuckets() = default;

const at::Tensor& GradientBuckets::memory(size_t index) const {
  require(index < size(), Status::kInvalidArgument, "index is ", index, "; expected 0 to ", size() - 1,
          ", a trainable parameter of the module");
  return buffer_.gradient(index);
}

void GradientBuckets::ready(size_t index, const at::Tensor& given, Exchange exchange) {
  const at::Tensor& memory = this->memory(index);
  const std::lock_guard<std::mutex> lock(mutex_);
  require(!buffer_.is_ready(index), Status::kInvalidState, "the gradient of '", names_[index],
          "' is ready already in this micro-batch; call accel_parameters_synchronize() at its end");
  if (given.defined()) {
    require(given.sizes() == memory.sizes(), Status::kShapeMismatch, "the gradient of '", names_[index], "' has shape ",
            given.sizes(), "; expected ", memory.sizes());
    if (!is_same_memory(given, memory)) put(given, memory);
  }
  parameters_[index].mutable_grad() = memory;
  buffer_.set_ready(index);
  if (exchange) start_complete_buckets(*exchange);
}

void GradientBuckets::put(const at::Tensor& given, const at::Tensor& memory) const {
  const at::NoGradGuard no_grad;
  if (first_of_group_)
    memory.copy_(given);
  else
    memory.add_(given.to(memory.device()));
}

void GradientBuckets::check_all_ready() const {
  std::string missing;
  for (size_t i = 0; i < size(); i++)
    if (!buffer_.is_ready(i)) missing += text(missing.empty() ? "'" : ", '", names_[i], "'");
  require(missing.empty(), Status::kInvalidState, "gradients are not ready: ", missing,
          "; expected accel_parameters_grad_ready() for each parameter in each micro-batch");
}

void GradientBuckets::start_complete_buckets(double factor) {
  while (const auto complete = buffer_.take_complete(exchanged_.size() - 1)) start_bucket(*complete, factor);
}

void GradientBuckets::start_bucket(size_t index, double factor) {
  exchanged_[index] = communicator_->start(
      comm::Collective::all_reduce(buffer_.buckets()[index].memory, comm::ReduceOp::kMean, factor));
}

const at::Tensor* GradientBuckets::start_all_but_last(Exchange exchange) {
  check_all_ready();
  if (exchange) start_complete_buckets(*exchange);
  buffer_.start();
  first_of_group_ = exchange.has_value();
  return exchange ? &buffer_.buckets().back().memory : nullptr;
}

std::shared_ptr<comm::Work> GradientBuckets::start(Exchange exchange) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (start_all_but_last(exchange) != nullptr) start_bucket(exchanged_.size() - 1, *exchange);
  }
  return started();
}

std::shared_ptr<comm::Work> GradientBuckets::started() {
  std::vector<std::shared_ptr<comm::Work>> works;
  for (auto& exchanged : exchanged_)
    if (auto work = std::exchange(exchanged, nullptr)) works.push_back(std::move(work));
  return comm::when_all(std::move(works));
}

void GradientBuckets::synchronize(Exchange exchange) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const at::Tensor* const last = start_all_but_last(exchange))
      communicator_->all_reduce(*last, comm::ReduceOp::kMean, *exchange);
  }
  const StepTimes::Section waiting(*communicator_->step_times(), StepPart::kCommunication);
  started()->synchronize();
}

}  // namespace accel::parallel
