#include "nn/module_sizes.hpp"

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <unordered_set>

#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

using Sizes = std::unordered_map<std::string, double>;  // of tensors and modules by their names; "" is the model

Sizes compute_sizes(const Module& module) {
  Sizes sizes;
  const auto add = [&sizes](const std::string& name, const at::Tensor& tensor) {
    const double bytes =
        static_cast<double>(tensor.numel()) * tensor::dtype_byte_size(tensor::dtype_name(tensor.scalar_type()));
    sizes[""] += bytes;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      sizes[name.substr(0, dot)] += bytes;
    sizes[name] += bytes;
  };
  for (const auto& [name, parameter] : module.named_parameters()) add(name, parameter);
  for (const auto& [name, buffer] : module.named_buffers()) add(name, buffer);
  return sizes;
}

bool is_direct(const std::string& name) { return name.find('.') == std::string::npos; }

void compare(const std::string& name, const Sizes& sizes, MaximumSizes& found) {
  const auto known = sizes.find(name);  // tied tensors are under their first name only
  const double size = known == sizes.end() ? 0 : known->second;
  if (size < found.largest) return;
  if (size > found.largest) found.largest_names.clear();
  found.largest = size;
  found.largest_names.push_back(name);
}

// Modules without children, in order. A child that a module has twice counts under its first name.
void compare_layers(const std::string& path, const Module& module, const Sizes& sizes, MaximumSizes& found) {
  std::unordered_set<const Module*> seen;
  for (const auto& [name, child] : module.children()) {
    if (!seen.insert(child.get()).second) continue;
    const std::string child_path = path.empty() ? name : path + "." + name;
    if (child->children().empty())
      compare(child_path, sizes, found);
    else
      compare_layers(child_path, *child, sizes, found);
  }
}

}  // namespace

MaximumSizes calculate_maximum_sizes(const Module& module) {
  const Sizes sizes = compute_sizes(module);
  MaximumSizes found;
  const auto total = sizes.find("");
  found.total = total == sizes.end() ? 0 : total->second;
  for (const auto& [name, parameter] : module.named_parameters())
    if (is_direct(name)) compare(name, sizes, found);
  compare_layers("", module, sizes, found);
  for (const auto& [name, buffer] : module.named_buffers())
    if (is_direct(name)) compare(name, sizes, found);
  return found;
}

}  // namespace accel::nn
