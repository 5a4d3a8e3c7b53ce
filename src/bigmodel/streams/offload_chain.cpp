// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/streams/offload_chain.hpp"

#include <utility>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {

std::shared_ptr<OffloadHook> OffloadHook::add(const nn::ModulePtr& model, c10::Device device,
                                              std::shared_ptr<OffloadHook> previous) {
  tensor::require_device(device);
  model->to(std::nullopt, c10::Device(c10::kCPU));  // also refuses a model that is dispatched
  const std::shared_ptr<OffloadHook> hook(new OffloadHook(model, std::move(previous)));
  hook->hook_ = model->hooks().add_pre_hook(
      [hook, device](nn::Module& called, const nn::Inputs& inputs) -> std::optional<nn::Inputs> {
        if (hook->previous_ != nullptr) hook->previous_->offload();
        called.to(std::nullopt, device);
        nn::Inputs moved;
        for (const c10::IValue& input : inputs)
          moved.push_back(tree::send_to_device(input, device, /*non_blocking=*/false, {}));
        return moved;
      },
      nn::HookOrder::kPlacement);
  return hook;
}

void OffloadHook::offload() const {
  if (const nn::ModulePtr model = model_.lock()) model->to(std::nullopt, c10::Device(c10::kCPU));
}

void OffloadHook::remove() {
  const nn::ModulePtr model = model_.lock();
  if (model != nullptr && hook_ >= 0) model->hooks().remove_hook(std::exchange(hook_, -1));
}

}  // namespace accel::bigmodel
