// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/module_tree.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"

namespace accel::bigmodel {

constexpr int32_t kMostNodes = 1 << 20;  // modules that are shared again and again would have endless places

class ModuleTree::Builder {
 public:
  Builder(ModuleTree& tree, const nn::SizeRules& rules, const std::vector<std::string>& no_split_classes)
      : tree_(tree), rules_(rules), no_split_(no_split_classes.begin(), no_split_classes.end()) {}

  void add_module(std::string_view name, int32_t parent, const nn::Module& module) {
    const int32_t number = add(NodeKind::kModule, name, parent);
    node(number).module = &module;
    node(number).may_split = !module.children().empty() && no_split_.count(module.kind()) == 0;
    for (const auto& [parameter_name, parameter] : module.direct_parameters())
      add_parameter(parameter_name, number, parameter);
    // A buffer of a module comes before those of its children where it is asked which name is the first.
    std::vector<bool> is_first;
    for (const auto& buffer : module.direct_buffers())
      is_first.push_back(buffers_.insert(buffer.tensor.unsafeGetTensorImpl()).second);
    for (const auto& [child_name, child] : module.children()) add_module(child_name, number, *child);
    for (size_t i = 0; i < is_first.size(); i++) add_buffer(module.direct_buffers()[i], number, is_first[i]);
    close(number);
  }

  void sort_ties() {
    std::vector<std::vector<std::pair<std::string, int32_t>>> groups;
    for (const auto& [first, others] : tied_) {
      groups.emplace_back();
      for (const int32_t member : others) groups.back().emplace_back(tree_.path(member), member);
      groups.back().emplace_back(tree_.path(first), first);
      std::sort(groups.back().begin(), groups.back().end());
    }
    std::sort(groups.begin(), groups.end());
    for (const auto& group : groups) {
      tree_.ties_.emplace_back();
      for (const auto& [path, member] : group) tree_.ties_.back().push_back(member);
    }
  }

 private:
  Node& node(int32_t number) { return tree_.nodes_[static_cast<size_t>(number)]; }

  int32_t add(NodeKind kind, std::string_view name, int32_t parent) {
    const int32_t number = tree_.size();
    require(number < kMostNodes, Status::kUnsupported, "the model has more than ", kMostNodes,
            " modules and tensors, those that are shared counted at each of their places; expected fewer");
    Node added = {};
    added.kind = kind;
    added.parent = parent;
    added.end = number + 1;
    added.name = name;
    tree_.nodes_.push_back(added);
    return number;
  }

  double bytes_of(int32_t number, const at::Tensor& tensor) const {
    return rules_.has_special() ? rules_.bytes_of(tree_.path(number), tensor) : rules_.bytes_of(tensor);
  }

  void add_parameter(std::string_view name, int32_t parent, const at::Tensor& tensor) {
    const int32_t number = add(NodeKind::kParameter, name, parent);
    const auto [first, is_first] = parameters_.emplace(tensor.unsafeGetTensorImpl(), number);
    if (is_first) {
      node(number).size = bytes_of(number, tensor);
      node(number).parameters = 1;
    } else {
      tied_[first->second].push_back(number);
    }
  }

  void add_buffer(const nn::Module::Buffer& buffer, int32_t parent, bool is_first) {
    const int32_t number = add(NodeKind::kBuffer, buffer.name, parent);
    if (!is_first) return;
    node(number).size = bytes_of(number, buffer.tensor);
    node(number).buffers = 1;
  }

  // Sums up what is in a module.
  void close(int32_t number) {
    Node& module = node(number);
    module.end = tree_.size();
    tree_.for_each_member(number, [&](int32_t member_number) {
      const Node& member = node(member_number);
      module.size += member.size;
      module.parameters += member.parameters;
      module.buffers += member.buffers;
      if (!module.may_split || member.kind != NodeKind::kModule || member.largest_layer < module.largest_layer) return;
      if (member.largest_layer > module.largest_layer) module.largest_layers = 0;
      module.largest_layer = member.largest_layer;
      module.largest_layers += member.largest_layers;
    });
    if (module.may_split) return;
    module.largest_layer = module.size;
    module.largest_layers = 1;
  }

  ModuleTree& tree_;
  const nn::SizeRules& rules_;
  const std::unordered_set<std::string_view> no_split_;
  ska::flat_hash_map<const at::TensorImpl*, int32_t> parameters_;
  std::unordered_set<const at::TensorImpl*> buffers_;
  std::unordered_map<int32_t, std::vector<int32_t>> tied_;  // later nodes of a parameter by its first
};

ModuleTree::ModuleTree(const nn::Module& model, const nn::SizeRules& rules,
                       const std::vector<std::string>& no_split_classes) {
  Builder builder(*this, rules, no_split_classes);
  builder.add_module("", -1, model);
  builder.sort_ties();
}

std::string ModuleTree::path(int32_t node) const {
  std::vector<std::string_view> names;
  for (; node > 0; node = (*this)[node].parent) names.push_back((*this)[node].name);
  std::string path;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!path.empty()) path += '.';
    path += *name;
  }
  return path;
}

}  // namespace accel::bigmodel
