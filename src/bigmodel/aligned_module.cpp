// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/aligned_module.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/set_data.hpp"

namespace accel::bigmodel {
namespace {

// Numbers of scopes count down from the largest, those of blocks up from 0.
size_t next_number() {
  static std::atomic<size_t> next{SIZE_MAX};
  return next--;
}

}  // namespace

bool has_offloaded_parameters(const nn::Module& module) {
  const std::shared_ptr<Dispatch> dispatch = Dispatch::of(module);
  const auto members = nn::members_of(module);
  return dispatch != nullptr && std::any_of(members.begin(), members.end(), [&dispatch](const auto& member) {
           return dispatch->find(member.tensor) != nullptr;
         });
}

AlignedModule::AlignedModule(const nn::ModulePtr& module, std::optional<c10::Device> device)
    : number_(next_number()), dispatch_(Dispatch::of(*module)) {
  require(!device || !device->is_meta(), Status::kInvalidArgument,
          "device is meta, where a module has no weights to read; expected cpu or an accelerator");
  if (device) tensor::require_device(*device);
  const at::NoGradGuard no_grad;
  // Copies come first, for which the device may be too full.
  std::vector<std::pair<std::shared_ptr<OffloadedTensor>, at::Tensor>> shown;
  std::vector<std::pair<at::Tensor, at::Tensor>> moved;
  for (const nn::Module::Member& member : nn::members_of(*module)) {
    const std::shared_ptr<OffloadedTensor> offloaded = dispatch_ == nullptr ? nullptr : dispatch_->find(member.tensor);
    if (offloaded != nullptr)
      shown.emplace_back(offloaded,
                         offloaded->source().to(device.value_or(dispatch_->main_device()), offloaded->dtype(),
                                                /*non_blocking=*/false, /*copy=*/true));
    else if (device && member.tensor.device() != *device)
      moved.emplace_back(member.tensor, member.tensor.detach().to(*device));
  }
  for (auto& [offloaded, data] : shown) {
    offloaded->show(number_, std::move(data));
    shown_.push_back(offloaded);
  }
  for (const auto& [tensor, data] : moved) {
    moved_.push_back({tensor, tensor.detach()});
    tensor::set_data(tensor, data);
  }
}

AlignedModule::~AlignedModule() {
  try {
    finish();
  } catch (const std::exception& error) {
    log(LogLevel::kError,
        "the changes of a module on another device are lost, for its scope was given up: ", error.what());
  }
}

void AlignedModule::finish() {
  const at::NoGradGuard no_grad;
  for (const auto& offloaded : std::exchange(shown_, {})) offloaded->hide(number_);
  std::exception_ptr failure;
  for (const Moved& moved : std::exchange(moved_, {})) {
    const at::Tensor present = moved.tensor.detach();
    tensor::set_data(moved.tensor, moved.former);  // first: the module is whole whatever fails
    try {
      if (present.sizes() == moved.former.sizes() && present.scalar_type() == moved.former.scalar_type())
        moved.former.copy_(present);
      else
        tensor::set_data(moved.tensor, present.to(moved.former.device()));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace accel::bigmodel
