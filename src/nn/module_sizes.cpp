// SPDX-License-Identifier: Apache-2.0
#include "nn/module_sizes.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_set>

#include "nn/module_walks.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

using SizeIndex = std::unordered_map<std::string_view, double>;

double bytes_per_element(c10::ScalarType type) {
  return type == c10::ScalarType::Bool ? 0.125 : static_cast<double>(c10::elementSize(type));
}

void compare(const std::string& name, const SizeIndex& sizes, LargestLayer& found) {
  const auto known = sizes.find(name);  // tied tensors are under their first name only
  const double size = known == sizes.end() ? 0 : known->second;
  if (size < found.bytes) return;
  if (size > found.bytes) found.names.clear();
  found.bytes = size;
  found.names.push_back(name);
}

struct LayerSearch {
  const SizeIndex& sizes;
  const std::vector<std::string>& no_split_classes;
  LargestLayer found;

  // A child that a module has twice counts under its first name.
  void visit_children(const std::string& path, const Module& module) {
    std::unordered_set<const Module*> seen;
    for (const auto& [name, child] : module.children()) {
      if (!seen.insert(child.get()).second) continue;
      const std::string child_path = tree::path_below(path, name);
      const bool is_layer = child->children().empty() || std::find(no_split_classes.begin(), no_split_classes.end(),
                                                                   child->kind()) != no_split_classes.end();
      if (is_layer)
        compare(child_path, sizes, found);
      else
        visit_children(child_path, *child);
    }
  }
};

}  // namespace

SizeRules::SizeRules(const std::string& dtype, const std::vector<std::pair<std::string, std::string>>& special_dtypes)
    : largest_float_(dtype.empty() ? 0 : tensor::dtype_byte_size(dtype)) {
  for (const auto& [name, special] : special_dtypes) special_[name] = tensor::dtype_byte_size(special);
}

double SizeRules::bytes_of(const at::Tensor& tensor) const {
  const c10::ScalarType type = tensor.scalar_type();
  const double own = bytes_per_element(type);
  const bool keeps_own = largest_float_ == 0 || c10::isIntegralType(type, /*includeBool=*/true);
  return static_cast<double>(tensor.numel()) * (keeps_own ? own : std::min(own, largest_float_));
}

double SizeRules::bytes_of(const std::string& name, const at::Tensor& tensor) const {
  const auto special = special_.find(name);
  return special == special_.end() ? bytes_of(tensor) : static_cast<double>(tensor.numel()) * special->second;
}

ModuleSizes compute_module_sizes(const Module& model, const SizeRules& rules, bool buffers_only) {
  ModuleSizes sizes;
  std::unordered_map<std::string, size_t> places;
  const auto add = [&](std::string name, double bytes) {
    const auto [place, is_new] = places.try_emplace(std::move(name), sizes.size());
    if (is_new) sizes.emplace_back(place->first, 0);
    sizes[place->second].second += bytes;
  };
  const auto add_tensor = [&](const std::string& name, const at::Tensor& tensor) {
    const double bytes = rules.bytes_of(name, tensor);
    add("", bytes);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      add(name.substr(0, dot), bytes);
    add(name, bytes);
  };
  if (!buffers_only)
    for (const auto& [name, parameter] : nn::named_parameters(model)) add_tensor(name, parameter);
  for (const auto& [name, buffer] : nn::named_buffers(model)) add_tensor(name, buffer);
  return sizes;
}

std::vector<std::string> module_leaves(const ModuleSizes& sizes) {
  std::unordered_set<std::string_view> parents;
  for (const auto& [name, size] : sizes) {
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos) parents.insert(std::string_view(name).substr(0, dot));
  }
  std::vector<std::string> leaves;
  for (const auto& [name, size] : sizes)
    if (!name.empty() && parents.count(name) == 0) leaves.push_back(name);
  return leaves;
}

LargestLayer largest_layer(const Module& model, const ModuleSizes& sizes,
                           const std::vector<std::string>& no_split_classes) {
  SizeIndex index;
  for (const auto& [name, size] : sizes) index.emplace(name, size);
  LayerSearch search{index, no_split_classes, {}};
  for (const auto& [name, parameter] : named_module_tensors(model, {/*include_buffers=*/false}))
    compare(name, index, search.found);
  search.visit_children("", model);
  for (const auto& buffer : model.direct_buffers()) compare(buffer.name, index, search.found);
  return std::move(search.found);
}

MaximumSizes calculate_maximum_sizes(const Module& module) {
  const ModuleSizes sizes = compute_module_sizes(module);
  LargestLayer largest = largest_layer(module, sizes);
  return {sizes.empty() ? 0 : sizes.front().second, largest.bytes, std::move(largest.names)};
}

NamedTensors named_module_tensors(const Module& module, const TensorSelection& selection) {
  const auto is_direct = [](const NamedTensor& entry) { return entry.first.find('.') == std::string::npos; };
  const auto is_below = [&](const NamedTensor& entry) { return !is_direct(entry); };
  NamedTensors tensors = nn::named_parameters(module);
  NamedTensors buffers = selection.include_buffers ? nn::named_buffers(module) : NamedTensors();
  if (!selection.recurse) {
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is_below), tensors.end());
    buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_below), buffers.end());
  }
  std::unordered_set<std::string> removed;
  if (selection.remove_non_persistent)
    for (std::string& name : non_persistent_buffers(module, selection.recurse)) removed.insert(std::move(name));
  for (NamedTensor& buffer : buffers)
    if (removed.count(buffer.first) == 0) tensors.push_back(std::move(buffer));
  return tensors;
}

std::vector<std::string> non_persistent_buffers(const Module& module, bool recurse) {
  std::vector<std::string> names;
  for (const auto& [path, part] : nn::named_modules(module)) {
    if (!recurse && !path.empty()) continue;
    for (const auto& buffer : part->direct_buffers())
      if (!buffer.persistent) names.push_back(tree::path_below(path, buffer.name));
  }
  return names;
}

}  // namespace accel::nn
