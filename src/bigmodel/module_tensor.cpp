// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/module_tensor.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/set_data.hpp"

namespace accel::bigmodel {

void set_module_tensor(nn::Module& model, const std::string& name, c10::Device device, const at::Tensor& value,
                       std::optional<at::ScalarType> dtype) {
  tensor::require_device(device);
  const at::Tensor member = nn::find_tensor(model, name);
  const size_t dot = name.rfind('.');
  const nn::ModulePtr owner = model.find(dot == std::string::npos ? "" : name.substr(0, dot));
  require(owner->weight_store() == nullptr, Status::kInvalidState, "'", name,
          "' belongs to a module that is dispatched; end that before its tensors are moved");
  require(value.defined() || !member.is_meta() || device.is_meta(), Status::kInvalidArgument, "'", name,
          "' is a meta tensor, which has no values to move to ", device, "; give it a value");
  require(!value.defined() || value.sizes() == member.sizes(), Status::kShapeMismatch, "the value for '", name,
          "' has the shape ", value.defined() ? value.sizes() : member.sizes(), "; expected ", member.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor from = (value.defined() ? value : member).detach();
  at::ScalarType wanted = member.scalar_type();
  if (dtype) wanted = from.is_floating_point() ? *dtype : from.scalar_type();
  at::Tensor data = from.to(device, wanted);
  if (value.defined() && data.is_alias_of(value)) data = data.clone();
  tensor::set_data(member, data);
}

bool is_below_any(const std::string& name, const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [&name](const std::string& path) {
    return name == path ||
           (name.size() > path.size() && name[path.size()] == '.' && name.compare(0, path.size(), path) == 0);
  });
}

}  // namespace accel::bigmodel
