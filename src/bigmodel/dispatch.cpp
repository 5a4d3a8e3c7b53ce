// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/dispatch.hpp"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "bigmodel/saved_weights.hpp"
#include "bigmodel/streams/batch_schedule.hpp"
#include "os/bus_error_guard.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

// A forward of a dispatched module on this thread.
struct ForwardUse {
  const Dispatch* dispatch;
  const nn::Module* module;
  std::optional<size_t> block;
  std::optional<c10::Device> input_device;  // of the whole model
  std::unique_ptr<tensor::SavedTensorHooks> saved;
  std::unique_ptr<BusErrorGuard> lost_pages;
};

// The innermost last.
std::vector<ForwardUse>& forward_uses() {
  thread_local std::vector<ForwardUse> of_thread;
  return of_thread;
}

bool is_used(const Dispatch* dispatch) {
  for (const ForwardUse& use : forward_uses())
    if (use.dispatch == dispatch) return true;
  return false;
}
bool is_used(const Dispatch* dispatch, size_t block) {
  for (const ForwardUse& use : forward_uses())
    if (use.dispatch == dispatch && use.block == block) return true;
  return false;
}

std::optional<c10::Device> device_of(const nn::Inputs& inputs) {
  std::optional<c10::Device> device;
  for (const c10::IValue& input : inputs)
    tree::for_each_tensor(input, [&device](const at::Tensor& tensor) {
      if (!device && tensor.defined()) device = tensor.device();
    });
  return device;
}

bool is_elsewhere(const c10::IValue& value, c10::Device device) {
  bool found = false;
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().device() != device;
  tree::for_each_tensor(
      value, [&](const at::Tensor& tensor) { found = found || (tensor.defined() && tensor.device() != device); });
  return found;
}

c10::IValue moved(const c10::IValue& value, c10::Device device) {
  return tree::send_to_device(value, device, /*non_blocking=*/false, {});
}

}  // namespace

std::shared_ptr<Dispatch> Dispatch::of(const nn::Module& module) {
  return std::dynamic_pointer_cast<Dispatch>(module.weight_store());
}

std::shared_ptr<OffloadedTensor> Dispatch::find(const at::Tensor& tensor) const {
  const auto found = offloaded_.find(tensor.unsafeGetTensorImpl());
  return found == offloaded_.end() || found->second->is_restored() ? nullptr : found->second;
}

at::Tensor Dispatch::stored(const at::Tensor& tensor) const {
  const std::shared_ptr<OffloadedTensor> offloaded = find(tensor);
  return offloaded == nullptr ? tensor : offloaded->values();
}

int64_t Dispatch::offloaded_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, tensor] : offloaded_) bytes += tensor->bytes();
  return bytes;
}

void Dispatch::add_hooks(nn::Module& module, Plan plan) {
  const auto self = shared_from_this();
  plan.hooks.push_back(module.hooks().add_pre_hook(
      [self](nn::Module& called, const nn::Inputs& inputs) { return self->begin(called, inputs); },
      nn::HookOrder::kPlacement));
  plan.hooks.push_back(module.hooks().add_post_hook(
      [self](nn::Module& called, const nn::Inputs&, const c10::IValue& output) { return self->end(called, output); },
      nn::HookOrder::kPlacement, /*after_errors=*/true));
  plans_.emplace(&module, std::move(plan));
}

std::optional<nn::Inputs> Dispatch::begin(nn::Module& module, const nn::Inputs& inputs) {
  const Plan& plan = plans_.at(&module);
  const bool is_outermost = !is_used(this), is_new_block = plan.block && !is_used(this, *plan.block);
  ForwardUse& use = forward_uses().emplace_back(ForwardUse{this, &module, {}, {}, nullptr, nullptr});
  if (is_outermost && !files_.empty()) {
    files_.check();
    use.lost_pages = std::make_unique<BusErrorGuard>();
  }
  if (plan.is_root) use.input_device = device_of(inputs);
  if (plan.block) {
    if (BatchSchedule* const schedule = BatchSchedule::current(); schedule != nullptr && is_new_block)
      schedule->begin_block();
    stream_->acquire(*plan.block);
    use.block = plan.block;
    if (is_new_block && at::GradMode::is_enabled()) use.saved = save_without_weights(stream_, *plan.block);
  }
  if (!plan.device) return std::nullopt;
  nn::Inputs aligned;
  for (size_t i = 0; i < inputs.size(); i++) {
    if ((i < plan.skipped.size() && plan.skipped[i]) || !is_elsewhere(inputs[i], *plan.device)) continue;
    if (aligned.empty()) aligned = inputs;
    aligned[i] = moved(inputs[i], *plan.device);
  }
  return aligned.empty() ? std::nullopt : std::optional<nn::Inputs>(std::move(aligned));
}

std::optional<c10::IValue> Dispatch::end(nn::Module& module, const c10::IValue& output) {
  // After an error the hooks of modules that never began run too.
  if (forward_uses().empty() || forward_uses().back().module != &module || forward_uses().back().dispatch != this)
    return std::nullopt;
  ForwardUse use = std::move(forward_uses().back());
  forward_uses().pop_back();
  use.saved.reset();
  if (use.block) {
    if (BatchSchedule* const schedule = BatchSchedule::current(); schedule != nullptr)
      schedule->keep(*stream_, *use.block);
    else
      stream_->release(*use.block);
  }
  if (output.isNone()) return std::nullopt;
  if (use.lost_pages != nullptr) use.lost_pages->check();
  if (!plans_.at(&module).is_root) return std::nullopt;
  if (stream_ != nullptr) stream_->end_pass();
  if (!use.input_device || !is_elsewhere(output, *use.input_device)) return std::nullopt;
  return moved(output, *use.input_device);
}

void Dispatch::remove(nn::Module& module) {
  const auto plan = plans_.find(&module);
  if (plan != plans_.end()) {
    for (const int64_t hook : plan->second.hooks) module.hooks().remove_hook(hook);
    plans_.erase(plan);
  }
  for (const nn::Module::Member& member : nn::members_of(module)) {
    const auto offloaded = offloaded_.find(member.tensor.unsafeGetTensorImpl());
    if (offloaded != offloaded_.end()) offloaded->second->restore();
  }
  module.set_weight_store(nullptr);
}

}  // namespace accel::bigmodel
