// SPDX-License-Identifier: Apache-2.0
#include "nn/module_shapes.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>

#include "nn/callback_module.hpp"
#include "nn/module_walks.hpp"

namespace accel::nn {
namespace {

using ShapeOf = std::function<std::vector<int64_t>(const at::Tensor& parameter)>;

at::Tensor without_memory(const at::Tensor& like, c10::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions().dtype(like.scalar_type()).device(at::kMeta));
}

bool is_member(const std::string& name) { return name.find('.') == std::string::npos; }

struct Copies {
  std::unordered_map<const Module*, ModulePtr> modules;
  std::unordered_map<const at::TensorImpl*, at::Tensor> parameters;
};

ModulePtr copy_shapes(const Module& module, const ShapeOf& shape, Copies& copies) {
  ModulePtr& known = copies.modules[&module];
  if (known != nullptr) return known;
  const auto copy = std::make_shared<CallbackModule>(module.kind());
  known = copy;
  for (const auto& [name, parameter] : nn::named_parameters(module)) {
    if (!is_member(name)) continue;
    at::Tensor& tensor = copies.parameters[parameter.unsafeGetTensorImpl()];
    if (!tensor.defined()) tensor = without_memory(parameter, shape(parameter));
    copy->add_parameter(name, tensor, parameter.requires_grad());
  }
  for (const auto& [name, buffer] : nn::named_buffers(module))
    if (is_member(name)) copy->add_buffer(name, without_memory(buffer, buffer.sizes()));
  for (const auto& [name, child] : module.children()) copy->add_child(name, copy_shapes(*child, shape, copies));
  return copy;
}

bool is_number(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Shorter numbers are smaller ones.
struct NameOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    if (is_number(a) && is_number(b)) return std::tuple(a.size(), a) < std::tuple(b.size(), b);
    return a < b;
  }
};

// The entries of a state dict that belong to one module.
struct Names {
  NamedTensors tensors;
  std::vector<std::string> order;  // of the children
  std::map<std::string, Names, NameOrder> children;

  Names& child(const std::string& name) {
    const auto [found, is_new] = children.try_emplace(name);
    if (is_new) order.push_back(name);
    return found->second;
  }
  bool is_list() const {
    return tensors.empty() && !order.empty() && std::all_of(order.begin(), order.end(), is_number);
  }
};

bool is_buffer(const std::string& name, const at::Tensor& tensor) {
  return !tensor.is_floating_point() || name == "running_mean" || name == "running_var";
}

using TiedShapes = std::map<std::tuple<const void*, int64_t, at::ScalarType>, at::Tensor>;

std::string kind_of(const std::string& name, const std::string& parent, const Names& names) {
  if (names.is_list()) return "ModuleList";
  if (!is_number(name)) return name;
  return parent.empty() ? "N" : parent + ".N";
}

ModulePtr module_of(const std::string& kind, const std::string& name, const Names& names, TiedShapes& tied) {
  const auto module = std::make_shared<CallbackModule>(kind);
  for (const auto& [member, tensor] : names.tensors) {
    at::Tensor shape = without_memory(tensor, tensor.sizes());
    if (is_buffer(member, tensor)) {
      module->add_buffer(member, shape);
      continue;
    }
    const void* const data = tensor.is_meta() || tensor.numel() == 0 ? nullptr : tensor.const_data_ptr();
    if (data != nullptr) shape = tied.try_emplace({data, tensor.numel(), tensor.scalar_type()}, shape).first->second;
    module->add_parameter(member, shape);
  }
  const auto add = [&](const std::string& child) {
    const Names& inner = names.children.at(child);
    module->add_child(child, module_of(kind_of(child, name, inner), child, inner, tied));
  };
  if (names.is_list())  // by their numbers
    for (const auto& [child, inner] : names.children) add(child);
  else
    for (const std::string& child : names.order) add(child);
  return module;
}

}  // namespace

ModulePtr shapes_of(const Module& module, const ShapeOf& shape) {
  Copies copies;
  return copy_shapes(module, shape, copies);
}

ModulePtr shapes_from_state_dict(const NamedTensors& state_dict) {
  Names root;
  for (const auto& [name, tensor] : state_dict) {
    Names* names = &root;
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
      names = &names->child(name.substr(begin, dot - begin));
      begin = dot + 1;
    }
    names->tensors.emplace_back(name.substr(begin), tensor);
  }
  TiedShapes tied;
  return module_of("Model", "", root, tied);
}

}  // namespace accel::nn
