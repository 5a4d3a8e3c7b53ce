// SPDX-License-Identifier: Apache-2.0
#include "module_tree_input.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>

#include "fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace {

at::Tensor meta_tensor(const c10::IValue& description) {
  const auto dtype = tensor::dtype_from_name(member(description, "dtype").toStringRef());
  return at::empty(integers(member(description, "shape")), at::TensorOptions().dtype(dtype).device(at::kMeta));
}

nn::ModulePtr build(const c10::IValue& description) {
  auto module = std::make_shared<nn::CallbackModule>(member(description, "class").toStringRef());
  const c10::IValue parameters = member(description, "params"), buffers = member(description, "buffers"),
                    children = member(description, "children");
  for (const c10::IValue& one : parameters.toListRef()) {
    const at::Tensor tensor = meta_tensor(one);
    module->add_parameter(member(one, "name").toStringRef(), tensor, tensor.is_floating_point());
  }
  for (const c10::IValue& one : buffers.toListRef())
    module->add_buffer(member(one, "name").toStringRef(), meta_tensor(one), member(one, "persistent").toBool());
  for (const c10::IValue& child : children.toListRef())
    module->add_child(member(child, "name").toStringRef(), build(child));
  return module;
}

}  // namespace

nn::ModulePtr build_module_tree(const c10::IValue& input) {
  const nn::ModulePtr model = build(member(input, "model"));
  const c10::IValue ties = member(input, "ties");
  for (const c10::IValue& group : ties.toListRef()) {
    const auto names = group.toListRef();
    for (size_t i = 1; i < names.size(); i++) nn::tie(*model, names[i].toStringRef(), names[0].toStringRef());
  }
  return model;
}

std::vector<std::string> texts(const c10::IValue& list) {
  std::vector<std::string> found;
  for (const c10::IValue& item : list.toListRef()) found.push_back(item.toStringRef());
  return found;
}

bigmodel::DeviceMapOptions read_size_settings(const c10::IValue& input) {
  bigmodel::DeviceMapOptions settings;
  if (const auto dtype = optional_member(input, "dtype")) settings.dtype = dtype->toStringRef();
  for (const auto& entry : member(input, "special_dtypes").toGenericDict())
    settings.special_dtypes.emplace_back(entry.key().toStringRef(), entry.value().toStringRef());
  std::string classes;
  for (const std::string& name : texts(member(input, "no_split_module_classes")))
    classes += (classes.empty() ? "" : ",") + name;
  settings.no_split_module_classes = classes;
  return settings;
}

c10::IValue map_of_pairs(const c10::IValue& pairs) {
  auto map = tree::new_map();
  for (const c10::IValue& pair : pairs.toListRef()) map.insert(pair.toListRef()[0], pair.toListRef()[1]);
  return map;
}

}  // namespace accel::parity
