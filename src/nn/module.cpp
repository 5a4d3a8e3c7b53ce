#include "nn/module.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_has_compatible_shallow_copy_type.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/placements.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// "layers.0" and "weight"; the folder is empty for a bare name.
std::pair<std::string_view, std::string_view> split_path(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Incremented whenever a member of any module is added, removed or replaced.
std::atomic<uint64_t> structure_version{0};
void count_change() { structure_version.fetch_add(1, std::memory_order_release); }

void check_parameter(const std::string& name, const at::Tensor& tensor, bool requires_grad) {
  require(tensor.defined(), Status::kTypeMismatch, "parameter '", name, "' has no tensor; expected one");
  require(tensor.is_leaf(), Status::kInvalidArgument, "parameter '", name,
          "' was computed from tensors that need gradients; detach it first");
  require(!requires_grad || tensor.is_floating_point() || tensor.is_complex(), Status::kInvalidArgument, "parameter '",
          name, "' is of dtype ", tensor::dtype_name(tensor.scalar_type()), "; expected a floating dtype");
}

// LibTorch keeps a tensor's identity while its memory changes only if the plugin of the device has agreed to it.
void require_replaceable(const at::Tensor& tensor, const at::Tensor& data) {
  require(at::_has_compatible_shallow_copy_type(tensor, data), Status::kUnsupported, "the device ", data.device(),
          " cannot take a module's tensors from ", tensor.device(),
          ": its plugin lacks aten::_has_compatible_shallow_copy_type");
}

}  // namespace

struct Module::ParameterList {
  uint64_t version;
  std::vector<at::Tensor> parameters;
};

const at::Tensor& Module::only_tensor(const Inputs& inputs) const {
  require(inputs.size() == 1, Status::kInvalidArgument, "a module of kind '", kind_, "' was called with ",
          inputs.size(), " inputs; expected one tensor");
  if (!inputs[0].isTensor() || !inputs[0].toTensor().defined())
    fail(Status::kTypeMismatch, "a module of kind '", kind_, "' was called with a ", tree::kind_name(inputs[0]),
         "; expected a tensor");
  const at::Tensor& input = inputs[0].toTensor();
  require(parameters_.empty() || parameter(0).device() == input.device(), Status::kInvalidArgument,
          "a module of kind '", kind_, "' with parameters on ",
          parameters_.empty() ? input.device() : parameter(0).device(), " was called with a tensor on ", input.device(),
          "; expected the same device: move one of them");
  return input;
}

void Module::check_name(const std::string& name) const {
  require(!name.empty() && name.find('.') == std::string::npos, Status::kInvalidArgument, "name '", name,
          "' cannot be used in a module; expected one or more characters without a dot");
  const auto taken = [&](const std::string& other) {
    require(other != name, Status::kAlreadyExists, "the module of kind '", kind_, "' has a '", name,
            "' already; choose another name");
  };
  for (const auto& [other, tensor] : parameters_) taken(other);
  for (const Buffer& buffer : buffers_) taken(buffer.name);
  for (const auto& [other, child] : children_) taken(other);
}

size_t Module::add_parameter(std::string name, at::Tensor tensor, bool requires_grad) {
  check_name(name);
  check_parameter(name, tensor, requires_grad);
  tensor = as_new_parameter(std::move(tensor));
  tensor.set_requires_grad(requires_grad);
  count_change();
  parameters_.emplace_back(std::move(name), std::move(tensor));
  return parameters_.size() - 1;
}

size_t Module::add_buffer(std::string name, at::Tensor tensor, bool persistent) {
  check_name(name);
  require(tensor.defined(), Status::kTypeMismatch, "buffer '", name, "' has no tensor; expected one");
  buffers_.push_back({std::move(name), as_new_buffer(std::move(tensor)), persistent});
  return buffers_.size() - 1;
}

bool Module::reaches(const Module& goal) const {
  for (const auto& [path, module] : named_modules())
    if (module == &goal) return true;
  return false;
}

void Module::add_child(std::string name, ModulePtr child) {
  check_name(name);
  require(child != nullptr, Status::kInvalidArgument, "child '", name, "' is not a module; expected one");
  require(!child->reaches(*this), Status::kInvalidArgument, "child '", name,
          "' contains the module that it would belong to; modules form a tree");
  count_change();
  children_.emplace_back(std::move(name), std::move(child));
}

void Module::check_free_parts() const {
  require(has_free_parts(), Status::kUnsupported, "a module of kind '", kind_,
          "' knows its parts by their places; exchange it as a whole");
}

void Module::replace_tensor(const std::string& name, at::Tensor tensor) {
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

void Module::replace_child(const std::string& name, ModulePtr child) {
  check_free_parts();
  require(child != nullptr && !child->reaches(*this), Status::kInvalidArgument, "child '", name,
          "' contains the module that it would belong to; modules form a tree");
  const auto place =
      std::find_if(children_.begin(), children_.end(), [&](const auto& entry) { return entry.first == name; });
  require(place != children_.end(), Status::kNotFound, "the module of kind '", kind_, "' has no child '", name, "'");
  count_change();
  place->second = std::move(child);
}

void Module::remove(const std::string& name) {
  check_free_parts();
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

Module::ParameterPlace Module::parameter_place(std::string_view path) {
  const auto [folder, name] = split_path(path);
  Module* owner = find(folder).get();
  for (size_t i = 0; i < owner->parameters_.size(); i++)
    if (owner->parameters_[i].first == name) return {owner, i};
  fail(Status::kNotFound, "parameter '", path, "' is not there; the module of kind '", owner->kind_, "' at '", folder,
       "' has no such parameter");
}

void Module::tie(std::string_view path, std::string_view source_path) {
  const ParameterPlace place = parameter_place(path);
  const ParameterPlace source_place = parameter_place(source_path);
  auto& [name, tensor] = place.owner->parameters_[place.index];
  const at::Tensor& source = source_place.owner->parameters_[source_place.index].second;
  require(tensor.sizes() == source.sizes(), Status::kShapeMismatch, "parameter '", path, "' has the shape ",
          tensor.sizes(), ", '", source_path, "' has ", source.sizes(), "; tied parameters need the same shape");
  count_change();
  tensor = source;
  const auto& source_placements = source_place.owner->placements_;
  const auto found = source_placements.find(source_place.owner->parameters_[source_place.index].first);
  const tensor::PlacementPtr placement = found == source_placements.end() ? nullptr : found->second;
  place.owner->placements_.erase(name);
  if (placement != nullptr) place.owner->placements_[name] = placement;
  place.owner->parameter_replaced(name, tensor);
}

void Module::set_placements(const Placements& placements) {
  for (const auto& [name, tensor] : parameters_)
    if (auto placement = placements.find(tensor)) placements_[name] = std::move(placement);
  for (const auto& [name, child] : children_) child->set_placements(placements);
}

Placements Module::placements() const {
  Placements found;
  for (const auto& [path, module] : named_modules())
    for (const auto& [name, tensor] : module->parameters_)
      if (const auto placed = module->placements_.find(name); placed != module->placements_.end())
        found.set(tensor, placed->second);
  return found;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  std::vector<std::pair<std::string, const Module*>> found;
  std::unordered_set<const Module*> seen;
  const std::function<void(const std::string&, const Module*)> visit = [&](const std::string& path,
                                                                           const Module* module) {
    if (!seen.insert(module).second) return;
    found.emplace_back(path, module);
    for (const auto& [name, child] : module->children_) visit(join_path(path, name), child.get());
  };
  visit("", this);
  return found;
}

std::vector<std::pair<std::string, const Module*>> Module::children_bottom_up() const {
  std::vector<std::pair<std::string, const Module*>> found;
  const std::function<void(const std::string&, const Module*)> visit = [&](const std::string& path,
                                                                           const Module* module) {
    std::unordered_set<const Module*> seen;  // a parent's child under two names counts once, as in torch
    for (const auto& [name, child] : module->children_)
      if (seen.insert(child.get()).second) visit(join_path(path, name), child.get());
    found.emplace_back(path, module);
  };
  visit("", this);
  return found;
}

std::vector<Module::Member> Module::members() const {
  std::vector<Member> members;
  for (const auto& [name, tensor] : parameters_) members.push_back({name, tensor, false});
  for (const Buffer& buffer : buffers_) members.push_back({buffer.name, buffer.tensor, true});
  return members;
}

NamedTensors Module::named_parameters() const {
  NamedTensors found;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& [path, module] : named_modules())
    for (const auto& [name, tensor] : module->parameters_)
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) found.emplace_back(join_path(path, name), tensor);
  return found;
}

NamedTensors Module::named_buffers() const {
  NamedTensors found;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& [path, module] : named_modules())
    for (const Buffer& buffer : module->buffers_)
      if (seen.insert(buffer.tensor.unsafeGetTensorImpl()).second)
        found.emplace_back(join_path(path, buffer.name), buffer.tensor);
  return found;
}

template <typename Visit>
void Module::visit_modules(std::unordered_set<const Module*>& seen, const Visit& visit) const {
  if (!seen.insert(this).second) return;
  visit(*this);
  for (const auto& [name, child] : children_) child->visit_modules(seen, visit);
}

std::vector<at::Tensor> Module::parameters() const {
  const uint64_t version = structure_version.load(std::memory_order_acquire);
  if (const auto kept = std::atomic_load(&parameter_list_); kept != nullptr && kept->version == version)
    return kept->parameters;
  std::vector<at::Tensor> found;
  std::unordered_set<const at::TensorImpl*> tensors;
  std::unordered_set<const Module*> modules;
  visit_modules(modules, [&](const Module& module) {
    for (const auto& [name, tensor] : module.parameters_)
      if (tensors.insert(tensor.unsafeGetTensorImpl()).second) found.push_back(tensor);
  });
  std::atomic_store(&parameter_list_, std::make_shared<const ParameterList>(ParameterList{version, found}));
  return found;
}

int64_t Module::num_parameters() const {
  int64_t elements = 0;
  for (const at::Tensor& tensor : parameters()) elements += tensor.numel();
  return elements;
}

const Module& Module::walk(std::string_view path) const {
  const Module* module = this;
  std::string_view rest = path;
  while (!rest.empty()) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const auto child = std::find_if(module->children_.begin(), module->children_.end(),
                                    [name](const auto& entry) { return entry.first == name; });
    require(child != module->children_.end(), Status::kNotFound, "module '", path,
            "' is not there; the module of kind '", module->kind_, "' has no child '", name, "'");
    module = child->second.get();
    require(dot == std::string_view::npos || dot + 1 < rest.size(), Status::kNotFound, "module '", path,
            "' is not there; a path does not end with a dot");
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  }
  return *module;
}

ModulePtr Module::find(std::string_view path) { return const_cast<Module&>(walk(path)).shared_from_this(); }

at::Tensor Module::find_tensor(std::string_view path) const {
  const auto [folder, name] = split_path(path);
  const Module& owner = walk(folder);
  for (const auto& [other, tensor] : owner.parameters_)
    if (other == name) return tensor;
  for (const Buffer& buffer : owner.buffers_)
    if (buffer.name == name) return buffer.tensor;
  fail(Status::kNotFound, "tensor '", path, "' is not there; the module of kind '", owner.kind_,
       "' has no such parameter or buffer");
}

void Module::train(bool training) {
  for (const auto& [path, module] : named_modules()) {
    Module& node = const_cast<Module&>(*module);
    node.training_ = training;
    node.training_changed();
  }
}

void Module::to(std::optional<at::ScalarType> dtype, std::optional<at::Device> device) {
  require(!dtype || at::isFloatingType(*dtype), Status::kInvalidArgument, "dtype ",
          tensor::dtype_name(dtype.value_or(at::kFloat)), " cannot hold parameters; expected a floating dtype");
  if (device) tensor::require_device(*device);
  for (const auto& [path, module] : named_modules())
    require(module->weight_store_ == nullptr, Status::kInvalidState, "the module of kind '", module->kind_,
            "' has offloaded weights, which are where the device map says; end its dispatch before it is moved");
  const at::NoGradGuard no_grad;
  const auto moved = [&](const at::Tensor& tensor) {
    const bool converts = dtype.has_value() && tensor.is_floating_point();
    return tensor.to(device.value_or(tensor.device()), converts ? *dtype : tensor.scalar_type());
  };
  for (const auto& [name, tensor] : named_parameters()) {
    const at::Tensor data = moved(tensor.detach());
    const at::Tensor grad = tensor.grad().defined() ? moved(tensor.grad()) : at::Tensor();
    if (data.device() == tensor.device() && data.scalar_type() == tensor.scalar_type()) continue;
    // The gradient must match its tensor at every moment.
    require_replaceable(tensor, data);
    tensor.mutable_grad().reset();
    tensor.set_data(data);
    tensor.mutable_grad() = grad;
  }
  for (const auto& [name, tensor] : named_buffers()) {
    const at::Tensor data = moved(tensor.detach());
    if (data.device() == tensor.device() && data.scalar_type() == tensor.scalar_type()) continue;
    require_replaceable(tensor, data);
    tensor.set_data(data);
  }
}

}  // namespace accel::nn
