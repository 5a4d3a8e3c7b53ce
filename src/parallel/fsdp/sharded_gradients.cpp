// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/sharded_gradients.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {

ShardedGradients::ShardedGradients(std::shared_ptr<FullyShardedDataParallel> model) : model_(std::move(model)) {
  const auto& groups = model_->groups();
  for (const auto& [name, parameter] : nn::named_parameters(*model_->module())) {
    if (!parameter.requires_grad()) continue;
    for (const auto& group : groups)
      for (size_t i = 0; i < group->parameters().size(); i++)
        if (group->parameters()[i]->tensor().is_same(parameter)) places_.push_back({group.get(), i});
  }
  require(!places_.empty(), Status::kInvalidArgument,
          "the module has no trainable parameter; add those whose gradients are to be averaged");
  // Groups are in the order of a backward: the later modules first, and the group that belongs to none of them last.
  for (size_t i = groups.size() - 1; i-- > 0;) reduced_.push_back(groups[i].get());
  reduced_.push_back(groups.back().get());
  reduced_.erase(std::remove_if(reduced_.begin(), reduced_.end(),
                                [](const auto* group) { return !group->gradients().is_trained(); }),
                 reduced_.end());
}

const ShardedGradients::Place& ShardedGradients::place(size_t index) const {
  require(index < size(), Status::kInvalidArgument, "index is ", index, "; expected 0 to ", size() - 1,
          ", a trainable parameter of the module");
  return places_[index];
}

at::Tensor& ShardedGradients::memory(const Place& place) {
  place.group->gradients().begin_backward();
  return place.group->parameters()[place.index]->tensor().mutable_grad();
}

const at::Tensor& ShardedGradients::gradient(size_t index) {
  const at::NoGradGuard no_grad;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place& own = place(index);
  at::Tensor& gradient = memory(own);
  const ShardedParameter& parameter = *own.group->parameters()[own.index];
  if (!gradient.defined())
    gradient =
        at::zeros(parameter.layout().shape(),
                  at::TensorOptions().dtype(parameter.layout().compute_dtype()).device(own.group->gather().device()));
  return gradient;
}

void ShardedGradients::ready(size_t index, const at::Tensor& given, Exchange exchange) {
  const at::NoGradGuard no_grad;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place& own = place(index);
  const ShardedParameter& parameter = *own.group->parameters()[own.index];
  require(!own.group->gradients().in_backward() || !own.group->gradients().has_arrived(own.index),
          Status::kInvalidState, "the gradient of '", parameter.name(),
          "' is ready already in this micro-batch; call accel_parameters_synchronize() at its end");
  at::Tensor& gradient = memory(own);
  if (given.defined()) {
    require(given.sizes() == parameter.layout().shape(), Status::kShapeMismatch, "the gradient of '", parameter.name(),
            "' has shape ", given.sizes(), "; expected ", c10::IntArrayRef(parameter.layout().shape()));
    if (!gradient.defined())
      gradient =
          at::empty(parameter.layout().shape(),
                    at::TensorOptions().dtype(parameter.layout().compute_dtype()).device(own.group->gather().device()))
              .copy_(given);
    else if (!is_same_memory(given, gradient))
      gradient.add_(given.to(gradient.device()));
  }
  require(gradient.defined(), Status::kInvalidArgument, "the gradient of '", parameter.name(),
          "' is NULL and was not written to the memory of accel_parameters_gradient() in this micro-batch");
  own.group->gradients().note_arrival(own.index);
  if (exchange) start_complete_groups(*exchange);
}

void ShardedGradients::check_all_ready() const {
  std::string missing;
  for (const Place& place : places_)
    if (!place.group->gradients().in_backward() || !place.group->gradients().has_arrived(place.index))
      missing += text(missing.empty() ? "'" : ", '", place.group->parameters()[place.index]->name(), "'");
  require(missing.empty(), Status::kInvalidState, "gradients are not ready: ", missing,
          "; expected accel_parameters_grad_ready() for each parameter in each micro-batch");
}

void ShardedGradients::start_complete_groups(double factor) {
  while (num_started_ < reduced_.size() && reduced_[num_started_]->gradients().in_backward() &&
         reduced_[num_started_]->gradients().all_arrived())
    reduced_[num_started_++]->gradients().start_reduce(factor);
}

void ShardedGradients::end_micro_batch(Exchange exchange) {
  for (ParameterGroup* const group : reduced_)
    if (exchange)
      group->gradients().finish_reduce();
    else
      group->gradients().keep_gradients();
  for (const auto& group : model_->groups()) group->gather().reshard();
  num_started_ = 0;
}

void ShardedGradients::synchronize(Exchange exchange) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_all_ready();
  if (exchange) start_complete_groups(*exchange);
  const StepTimes::Section waiting(*model_->ranks().shard->step_times(), StepPart::kCommunication);
  end_micro_batch(exchange);
}

std::vector<std::shared_ptr<comm::Work>> ShardedGradients::start_all(Exchange exchange) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(model_->ranks().replicate == nullptr || model_->ranks().replicate->size() == 1, Status::kUnsupported,
          "copies of shards are averaged when the shards are, which accel_parameters_synchronize() does; expected one "
          "copy, or that function");
  check_all_ready();
  std::vector<std::shared_ptr<comm::Work>> works;
  if (!exchange) return works;
  start_complete_groups(*exchange);
  for (const ParameterGroup* const group : reduced_)
    if (group->gradients().reducing() != nullptr) works.push_back(group->gradients().reducing());
  return works;
}

std::shared_ptr<comm::Work> ShardedGradients::start(Exchange exchange) {
  auto all = std::make_shared<comm::Work>();
  comm::when_all(start_all(exchange))
      ->on_end([self = shared_from_this(), all, exchange](const std::exception_ptr& error) {
        std::exception_ptr failure = error;
        if (!failure) try {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            self->end_micro_batch(exchange);
          } catch (const std::exception&) {
            failure = std::current_exception();
          }
        all->complete({}, failure);
      });
  return all;
}

ParameterGroup& ShardedGradients::group_of(const std::string& module) const {
  std::string known;
  for (const auto& group : model_->groups()) {
    if (group->name() == module) return *group;
    known += text(known.empty() ? "'" : ", '", group->name(), "'");
  }
  fail(Status::kNotFound, "module '", module, "' is not sharded by itself; expected one of ", known);
}

void ShardedGradients::unshard(const std::string& module, bool wait) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ParameterGroup& group = group_of(module);
  if (!group.gradients().in_backward()) group.gather().note_update();
  if (wait)
    group.gather().unshard();
  else
    group.gather().start_unshard();
}

void ShardedGradients::reshard(const std::string& module) {
  const std::lock_guard<std::mutex> lock(mutex_);
  group_of(module).gather().reshard();
}

}  // namespace accel::parallel
