// SPDX-License-Identifier: Apache-2.0
#include "nn/module_walks.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "base/error.hpp"

namespace accel::nn {
namespace {

// "layers.0" and "weight"; the folder is empty for a bare name.
std::pair<std::string_view, std::string_view> split_path(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

struct ParameterPlace {
  Module* owner;
  size_t index;
};

ParameterPlace parameter_place(Module& root, std::string_view path) {
  const auto [folder, name] = split_path(path);
  Module* owner = root.find(folder).get();
  for (size_t i = 0; i < owner->direct_parameters().size(); i++)
    if (owner->direct_parameters()[i].first == name) return {owner, i};
  fail(Status::kNotFound, "parameter '", path, "' is not there; the module of kind '", owner->kind(), "' at '", folder,
       "' has no such parameter");
}

}  // namespace

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() || name.empty() ? path + name : path + "." + name;
}

void tie(Module& root, std::string_view path, std::string_view source_path) {
  const ParameterPlace place = parameter_place(root, path);
  const ParameterPlace source_place = parameter_place(root, source_path);
  const at::Tensor& tensor = place.owner->parameter(place.index);
  const at::Tensor& source = source_place.owner->parameter(source_place.index);
  require(tensor.sizes() == source.sizes(), Status::kShapeMismatch, "parameter '", path, "' has the shape ",
          tensor.sizes(), ", '", source_path, "' has ", source.sizes(), "; tied parameters need the same shape");
  place.owner->share_parameter(place.index, *source_place.owner, source_place.index);
}

void set_placements(Module& root, const Placements& placements) {
  for (size_t i = 0; i < root.direct_parameters().size(); i++)
    if (auto placement = placements.find(root.parameter(i))) root.set_placement(i, std::move(placement));
  for (const auto& [name, child] : root.children()) set_placements(*child, placements);
}

namespace {

template <typename Condition>
Placements placements_if(const Module& root, const Condition& condition) {
  Placements found;
  for (const auto& [path, module] : named_modules(root))
    for (size_t i = 0; i < module->direct_parameters().size(); i++)
      if (auto placed = module->placement(i); placed != nullptr && condition(*placed))
        found.set(module->parameter(i), std::move(placed));
  return found;
}

}  // namespace

Placements placements(const Module& root) {
  return placements_if(root, [](const tensor::Placement& placement) { return !placement.axes.empty(); });
}

Placements summed_placements(const Module& root) {
  return placements_if(root, [](const tensor::Placement& placement) { return !placement.summed_axes.empty(); });
}

NamedModules named_modules(const Module& root) {
  NamedModules found;
  std::unordered_set<const Module*> seen;
  const std::function<void(const std::string&, const Module*)> visit = [&](const std::string& path,
                                                                           const Module* module) {
    if (!seen.insert(module).second) return;
    found.emplace_back(path, module);
    for (const auto& [name, child] : module->children()) visit(join_path(path, name), child.get());
  };
  visit("", &root);
  return found;
}

NamedModules children_bottom_up(const Module& root) {
  NamedModules found;
  const std::function<void(const std::string&, const Module*)> visit = [&](const std::string& path,
                                                                           const Module* module) {
    std::unordered_set<const Module*> seen;  // a parent's child under two names counts once, as in torch
    for (const auto& [name, child] : module->children())
      if (seen.insert(child.get()).second) visit(join_path(path, name), child.get());
    found.emplace_back(path, module);
  };
  visit("", &root);
  return found;
}

NamedTensors named_parameters(const Module& root) {
  NamedTensors found;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& [path, module] : named_modules(root))
    for (const auto& [name, tensor] : module->direct_parameters())
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) found.emplace_back(join_path(path, name), tensor);
  return found;
}

NamedTensors named_buffers(const Module& root) {
  NamedTensors found;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& [path, module] : named_modules(root))
    for (const Module::Buffer& buffer : module->direct_buffers())
      if (seen.insert(buffer.tensor.unsafeGetTensorImpl()).second)
        found.emplace_back(join_path(path, buffer.name), buffer.tensor);
  return found;
}

int64_t num_parameters(const Module& root) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : root.parameters()) elements += tensor.numel();
  return elements;
}

const Module& module_at(const Module& root, std::string_view path) {
  const Module* module = &root;
  std::string_view rest = path;
  while (!rest.empty()) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const auto child = std::find_if(module->children().begin(), module->children().end(),
                                    [name](const auto& entry) { return entry.first == name; });
    require(child != module->children().end(), Status::kNotFound, "module '", path,
            "' is not there; the module of kind '", module->kind(), "' has no child '", name, "'");
    module = child->second.get();
    require(dot == std::string_view::npos || dot + 1 < rest.size(), Status::kNotFound, "module '", path,
            "' is not there; a path does not end with a dot");
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  }
  return *module;
}

at::Tensor find_tensor(const Module& root, std::string_view path) {
  const auto [folder, name] = split_path(path);
  const Module& owner = module_at(root, folder);
  for (const auto& [other, tensor] : owner.direct_parameters())
    if (other == name) return tensor;
  for (const Module::Buffer& buffer : owner.direct_buffers())
    if (buffer.name == name) return buffer.tensor;
  fail(Status::kNotFound, "tensor '", path, "' is not there; the module of kind '", owner.kind(),
       "' has no such parameter or buffer");
}

}  // namespace accel::nn
