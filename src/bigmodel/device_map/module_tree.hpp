// SPDX-License-Identifier: Apache-2.0
// A module tree as an array, with sizes: what placing it on devices looks at again and again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.hpp"
#include "nn/module_sizes.hpp"

namespace accel::bigmodel {

enum class NodeKind : uint8_t { kModule, kParameter, kBuffer };

// Sizes are in bytes; each tensor counts under its first name, and nothing under others.
struct Node {
  NodeKind kind;
  bool may_split = false;  // a module with children that need not stay together
  int32_t parent = -1;
  int32_t end = 0;  // one past the last node in it: those in a node follow it
  std::string_view name;
  const nn::Module* module = nullptr;  // null for a tensor
  double size = 0;
  int32_t parameters = 0;      // with their first name
  int32_t buffers = 0;         // with their first name
  double largest_layer = 0;    // size of the largest module in it, or itself, that is never split
  int32_t largest_layers = 0;  // the number of those
};

class ModuleTree {
 public:
  // The model must live as long as the tree. Modules of `no_split_classes` stay together.
  ModuleTree(const nn::Module& model, const nn::SizeRules& rules, const std::vector<std::string>& no_split_classes);

  // Node 0 is the model. The members of a module are its parameters, then its children, then its buffers.
  const Node& operator[](int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  bool contains(int32_t node, int32_t other) const { return node <= other && other < (*this)[node].end; }
  std::string path(int32_t node) const;

  template <typename Visit>
  void for_each_member(int32_t node, const Visit& visit) const {
    for (int32_t member = node + 1; member < (*this)[node].end; member = (*this)[member].end) visit(member);
  }

  // Parameters that are one tensor: groups of nodes, both sorted by their paths.
  const std::vector<std::vector<int32_t>>& ties() const { return ties_; }

 private:
  class Builder;

  std::vector<Node> nodes_;
  std::vector<std::vector<int32_t>> ties_;
};

}  // namespace accel::bigmodel
