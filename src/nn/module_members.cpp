// SPDX-License-Identifier: Apache-2.0
#include "nn/module_members.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

std::atomic<uint64_t> changes{0};
void count_change() { changes.fetch_add(1, std::memory_order_release); }

void check_parameter(const std::string& name, const at::Tensor& tensor, bool requires_grad) {
  require(tensor.defined(), Status::kTypeMismatch, "parameter '", name, "' has no tensor; expected one");
  require(tensor.is_leaf(), Status::kInvalidArgument, "parameter '", name,
          "' was computed from tensors that need gradients; detach it first");
  require(!requires_grad || tensor.is_floating_point() || tensor.is_complex(), Status::kInvalidArgument, "parameter '",
          name, "' is of dtype ", tensor::dtype_name(tensor.scalar_type()), "; expected a floating dtype");
}

}  // namespace

uint64_t structure_version() { return changes.load(std::memory_order_acquire); }

void ModuleMembers::check_name(const std::string& name, bool is_child) const {
  require(!name.empty() && name.find('.') == std::string::npos, Status::kInvalidArgument, "name '", name,
          "' cannot be used in a module; expected one or more characters without a dot");
  const auto taken = [&](const std::string& other) {
    require(other != name, Status::kAlreadyExists, "the module of kind '", kind_, "' has a '", name,
            "' already; choose another name");
  };
  if (!is_child)  // scales of a parameter are in a child of its name
    for (const auto& [other, tensor] : parameters_) taken(other);
  for (const Buffer& buffer : buffers_) taken(buffer.name);
  for (const auto& [other, child] : children_) taken(other);
}

size_t ModuleMembers::add_parameter(std::string name, at::Tensor tensor, bool requires_grad) {
  check_name(name);
  check_parameter(name, tensor, requires_grad);
  tensor = as_new_parameter(std::move(tensor));
  tensor.set_requires_grad(requires_grad);
  count_change();
  parameters_.emplace_back(std::move(name), std::move(tensor));
  return parameters_.size() - 1;
}

size_t ModuleMembers::add_buffer(std::string name, at::Tensor tensor, bool persistent) {
  check_name(name);
  require(tensor.defined(), Status::kTypeMismatch, "buffer '", name, "' has no tensor; expected one");
  buffers_.push_back({std::move(name), as_new_buffer(std::move(tensor)), persistent});
  return buffers_.size() - 1;
}

void ModuleMembers::add_child(std::string name, ModulePtr child) {
  check_name(name, /*is_child=*/true);
  require(child != nullptr, Status::kInvalidArgument, "child '", name, "' is not a module; expected one");
  require(!is_within(*child), Status::kInvalidArgument, "child '", name,
          "' contains the module that it would belong to; modules form a tree");
  count_change();
  children_.emplace_back(std::move(name), std::move(child));
}

void ModuleMembers::check_free_parts() const {
  require(has_free_parts(), Status::kUnsupported, "a module of kind '", kind_,
          "' knows its parts by their places; exchange it as a whole");
}

void ModuleMembers::replace_tensor(const std::string& name, at::Tensor tensor) {
  for (auto& [other, parameter] : parameters_) {
    if (other != name) continue;
    check_parameter(name, tensor, tensor.requires_grad());
    count_change();
    parameter = std::move(tensor);
    placements_.erase(name);
    parameter_replaced(name, parameter);
    return;
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.name != name) continue;
    require(tensor.defined(), Status::kTypeMismatch, "buffer '", name, "' has no tensor; expected one");
    buffer.tensor = std::move(tensor);
    parameter_replaced(name, buffer.tensor);
    return;
  }
  fail(Status::kNotFound, "the module of kind '", kind_, "' has no parameter or buffer '", name, "'");
}

void ModuleMembers::replace_child(const std::string& name, ModulePtr child) {
  check_free_parts();
  require(child != nullptr && !is_within(*child), Status::kInvalidArgument, "child '", name,
          "' contains the module that it would belong to; modules form a tree");
  const auto place =
      std::find_if(children_.begin(), children_.end(), [&](const auto& entry) { return entry.first == name; });
  require(place != children_.end(), Status::kNotFound, "the module of kind '", kind_, "' has no child '", name, "'");
  count_change();
  place->second = std::move(child);
}

void ModuleMembers::remove(const std::string& name, bool is_elsewhere) {
  if (!is_elsewhere) check_free_parts();
  count_change();
  const size_t parts = parameters_.size() + buffers_.size() + children_.size();
  const auto is_named = [&](const auto& entry) { return entry.first == name; };
  placements_.erase(name);
  parameters_.erase(std::remove_if(parameters_.begin(), parameters_.end(), is_named), parameters_.end());
  children_.erase(std::remove_if(children_.begin(), children_.end(), is_named), children_.end());
  buffers_.erase(
      std::remove_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) { return buffer.name == name; }),
      buffers_.end());
  require(parameters_.size() + buffers_.size() + children_.size() < parts, Status::kNotFound, "the module of kind '",
          kind_, "' has no '", name, "'");
}

void ModuleMembers::share_parameter(size_t index, const ModuleMembers& source, size_t source_index) {
  count_change();
  parameters_[index].second = source.parameter(source_index);
  set_placement(index, source.placement(source_index));
  parameter_replaced(parameters_[index].first, parameters_[index].second);
}

tensor::PlacementPtr ModuleMembers::placement(size_t index) const {
  const auto found = placements_.find(parameters_[index].first);
  return found == placements_.end() ? nullptr : found->second;
}

void ModuleMembers::set_placement(size_t index, tensor::PlacementPtr placement) {
  const std::string& name = parameters_[index].first;
  if (placement == nullptr)
    placements_.erase(name);
  else
    placements_[name] = std::move(placement);
}

std::vector<ModuleMembers::Member> members_of(const ModuleMembers& module) {
  std::vector<ModuleMembers::Member> members;
  for (const auto& [name, tensor] : module.direct_parameters()) members.push_back({name, tensor, false});
  for (const ModuleMembers::Buffer& buffer : module.direct_buffers())
    members.push_back({buffer.name, buffer.tensor, true});
  return members;
}

}  // namespace accel::nn
