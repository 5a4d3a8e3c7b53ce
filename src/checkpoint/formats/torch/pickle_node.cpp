// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_node.hpp"

#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {

const std::string* PickleNode::text() const {
  const c10::IValue* const found = value();
  return found != nullptr && found->isString() ? &found->toStringRef() : nullptr;
}

const std::string* PickleNode::bytes() const {
  const c10::IValue* const found = value();
  const tree::Bytes* const bytes = found == nullptr ? nullptr : tree::bytes_of(*found);
  return bytes == nullptr ? nullptr : &bytes->data;
}

const std::string* PickleNode::name() const {
  const auto* const found = std::get_if<PickledName>(&content);
  return found == nullptr ? nullptr : &found->name;
}

const PickleItems* PickleNode::tuple() const {
  const auto* const found = std::get_if<PickledTuple>(&content);
  return found == nullptr ? nullptr : &found->items;
}

const PickleItems* PickleNode::items() const {
  return std::holds_alternative<PickledList>(content) ? &std::get<PickledList>(content).items : tuple();
}

bool PickleNode::is_none() const {
  const c10::IValue* const found = value();
  return found != nullptr && found->isNone();
}

bool PickleNode::is_true() const {
  const c10::IValue* const found = value();
  return found != nullptr && found->isBool() && found->toBool();
}

std::string kind_of(const PickleNode& node) {
  if (const c10::IValue* const value = node.value()) return tree::kind_name(*value);
  constexpr const char* kKinds[] = {"value", "name",   "long integer", "list",        "tuple",
                                    "map",   "object", "storage",      "NumPy dtype", "NumPy array"};
  return kKinds[node.content.index()];
}

}  // namespace accel::checkpoint
