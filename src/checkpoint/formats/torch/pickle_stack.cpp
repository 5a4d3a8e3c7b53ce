// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_stack.hpp"

#include <cstddef>
#include <utility>

namespace accel::checkpoint {
namespace {

constexpr size_t kMostNodes = size_t{1} << 26;  // of one file; each takes about 100 bytes

}  // namespace

void PickleStack::clear() {
  stack_.clear();
  marks_.clear();
}

const PickleNode& PickleStack::result() const {
  if (stack_.size() != 1 || !marks_.empty()) input_.corrupt("it ends with ", stack_.size(), " objects; expected one");
  return *stack_.back();
}

PickleNode* PickleStack::add(PickleNode node) {
  if (nodes_.size() >= kMostNodes) input_.refuse("has more than ", kMostNodes, " objects");
  return &nodes_.emplace_back(std::move(node));
}

PickleNode* PickleStack::top() const {
  if (stack_.empty() || is_at_mark()) input_.corrupt("an operand is missing");
  return stack_.back();
}

PickleNode* PickleStack::pop() {
  PickleNode* const node = top();
  stack_.pop_back();
  return node;
}

void PickleStack::drop() {
  if (is_at_mark())
    marks_.pop_back();
  else
    pop();
}

PickleItems PickleStack::pop_to_mark() {
  if (marks_.empty()) input_.corrupt("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  PickleItems items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

}  // namespace accel::checkpoint
