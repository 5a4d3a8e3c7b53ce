// SPDX-License-Identifier: Apache-2.0
// Module members: what a module itself has under a name, which is a parameter with its placement, a buffer or a child.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/placement.hpp"

namespace accel::nn {

class Module;
class WeightStore;
using ModulePtr = std::shared_ptr<Module>;
using NamedTensor = std::pair<std::string, at::Tensor>;
using NamedTensors = std::vector<NamedTensor>;

class ModuleMembers {
 public:
  struct Buffer {
    std::string name;
    at::Tensor tensor;
    bool persistent;
  };
  struct Member {
    std::string name;
    at::Tensor tensor;
    bool is_buffer;
  };

  virtual ~ModuleMembers() = default;
  ModuleMembers(const ModuleMembers&) = delete;
  ModuleMembers& operator=(const ModuleMembers&) = delete;

  // The name of the module's class, for messages.
  const std::string& kind() const { return kind_; }

  // Throws if hooks on the module would have no effect.
  virtual void check_hookable() const {}

  // Names are unique among parameters, buffers and children, and have no dot. The index is for parameter() and
  // buffer(). In a scope of a CreationDevice tensors are moved to its device.
  size_t add_parameter(std::string name, at::Tensor tensor, bool requires_grad = true);
  size_t add_buffer(std::string name, at::Tensor tensor, bool persistent = true);
  void add_child(std::string name, ModulePtr child);
  // Replaces a parameter, which is trained if the tensor requires a gradient, or a buffer.
  void replace_tensor(const std::string& name, at::Tensor tensor);
  void replace_child(const std::string& name, ModulePtr child);
  // Removes the parameter, buffer or child with this name; one that another rank computes, also of a module whose
  // forward refers to it.
  void remove(const std::string& name, bool is_elsewhere = false);
  // The parameter becomes the same as one of another module, or of this.
  void share_parameter(size_t index, const ModuleMembers& source, size_t source_index);
  // Which part this rank stores of a parameter; null: the whole, with the whole gradient.
  tensor::PlacementPtr placement(size_t index) const;
  void set_placement(size_t index, tensor::PlacementPtr placement);

  const at::Tensor& parameter(size_t index) const { return parameters_[index].second; }
  const at::Tensor& buffer(size_t index) const { return buffers_[index].tensor; }
  const NamedTensors& direct_parameters() const { return parameters_; }
  const std::vector<Buffer>& direct_buffers() const { return buffers_; }
  const std::vector<std::pair<std::string, ModulePtr>>& children() const { return children_; }

  // Where the values of parameters and buffers are while these have none. Null: they always have them.
  void set_weight_store(std::shared_ptr<WeightStore> store) { weight_store_ = std::move(store); }
  const std::shared_ptr<WeightStore>& weight_store() const { return weight_store_; }

 protected:
  explicit ModuleMembers(std::string kind) : kind_(std::move(kind)) {}

  // For modules that also store a parameter or a buffer elsewhere.
  virtual void parameter_replaced(const std::string&, const at::Tensor&) {}
  // Whether children may be replaced and members removed: not if forward refers to its parts in other ways.
  virtual bool has_free_parts() const { return false; }
  // Whether the module is another one, or somewhere inside it.
  virtual bool is_within(const Module& other) const = 0;

 private:
  void check_name(const std::string& name, bool is_child = false) const;
  void check_free_parts() const;

  std::string kind_;
  NamedTensors parameters_;
  std::map<std::string, tensor::PlacementPtr> placements_;  // of parameters_ that are not whole here, or summed
  std::vector<Buffer> buffers_;
  std::vector<std::pair<std::string, ModulePtr>> children_;
  std::shared_ptr<WeightStore> weight_store_;
};

std::vector<ModuleMembers::Member> members_of(const ModuleMembers& module);

// Changes whenever a parameter or child of any module is added, removed or replaced.
uint64_t structure_version();

}  // namespace accel::nn
