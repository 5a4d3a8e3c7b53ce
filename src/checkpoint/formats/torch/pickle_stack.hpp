// SPDX-License-Identifier: Apache-2.0
// The stack of a pickle's reader, with its marks. It owns the nodes, which stay after they are popped.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/formats/torch/pickle_input.hpp"
#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

class PickleStack {
 public:
  // Errors are those of `input`.
  explicit PickleStack(const PickleInput& input) : input_(input) {}

  // For the next pickle.
  void clear();
  // The object of a pickle that has ended.
  const PickleNode& result() const;

  // A new node, which is not on the stack.
  PickleNode* add(PickleNode node);
  void push(PickleNode* node) { stack_.push_back(node); }
  template <typename Content>
  void push_new(Content content) {
    push(add({std::move(content)}));
  }
  void push_value(c10::IValue value) { push_new(std::move(value)); }

  PickleNode* top() const;
  // The container that items are added to; `expected` names its kind in errors.
  template <typename Content>
  Content& top_as(const char* expected) const {
    auto* const content = std::get_if<Content>(&top()->content);
    if (content == nullptr) input_.corrupt("items are added to a ", kind_of(*top()), "; expected a ", expected);
    return *content;
  }
  PickleNode* pop();
  // Drops the object on top, or the mark.
  void drop();

  void mark() { marks_.push_back(stack_.size()); }
  PickleItems pop_to_mark();

 private:
  bool is_at_mark() const { return !marks_.empty() && marks_.back() == stack_.size(); }

  const PickleInput& input_;
  std::deque<PickleNode> nodes_;
  PickleItems stack_;
  std::vector<size_t> marks_;
};

}  // namespace accel::checkpoint
