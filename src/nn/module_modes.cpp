// SPDX-License-Identifier: Apache-2.0
// Modes of a module and all inside it: training, dtype, device; and the search for one inside it.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_has_compatible_shallow_copy_type.h>

#include "base/error.hpp"
#include "nn/initial_values.hpp"
#include "nn/layers/encoded_tensors.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

// LibTorch keeps a tensor's identity while its memory changes only if the plugin of the device has agreed to it.
void require_replaceable(const at::Tensor& tensor, const at::Tensor& data) {
  require(at::_has_compatible_shallow_copy_type(tensor, data), Status::kUnsupported, "the device ", data.device(),
          " cannot take a module's tensors from ", tensor.device(),
          ": its plugin lacks aten::_has_compatible_shallow_copy_type");
}

}  // namespace

ModulePtr Module::find(std::string_view path) { return const_cast<Module&>(module_at(*this, path)).shared_from_this(); }

void Module::train(bool training) {
  for (const auto& [path, module] : nn::named_modules(*this)) {
    Module& node = const_cast<Module&>(*module);
    node.training_ = training;
    node.training_changed();
  }
}

void Module::to(std::optional<at::ScalarType> dtype, std::optional<at::Device> device) {
  require(!dtype || at::isFloatingType(*dtype), Status::kInvalidArgument, "dtype ",
          tensor::dtype_name(dtype.value_or(at::kFloat)), " cannot hold parameters; expected a floating dtype");
  if (device) tensor::require_device(*device);
  for (const auto& [path, module] : nn::named_modules(*this))
    require(module->weight_store() == nullptr, Status::kInvalidState, "the module of kind '", module->kind(),
            "' has offloaded weights, which are where the device map says; end its dispatch before it is moved");
  const at::NoGradGuard no_grad;
  const auto exact = encoded_tensors(*this);
  const auto moved = [&](const at::Tensor& tensor) {
    const bool converts = dtype && tensor.is_floating_point() && exact.count(tensor.unsafeGetTensorImpl()) == 0;
    return tensor.detach().to(device.value_or(tensor.device()), converts ? *dtype : tensor.scalar_type());
  };
  for (const auto& [name, tensor] : nn::named_parameters(*this)) {
    const at::Tensor data = moved(tensor);
    const at::Tensor grad = tensor.grad().defined() ? moved(tensor.grad()) : at::Tensor();
    if (data.device() == tensor.device() && data.scalar_type() == tensor.scalar_type()) continue;
    // The gradient must match its tensor at every moment.
    require_replaceable(tensor, data);
    tensor.mutable_grad().reset();
    remember_filling_of(data, tensor);
    tensor.set_data(data);
    tensor.mutable_grad() = grad;
  }
  for (const auto& [name, tensor] : nn::named_buffers(*this)) {
    const at::Tensor data = moved(tensor);
    if (data.device() == tensor.device() && data.scalar_type() == tensor.scalar_type()) continue;
    require_replaceable(tensor, data);
    tensor.set_data(data);
  }
}

}  // namespace accel::nn
