// SPDX-License-Identifier: Apache-2.0
// Nodes hold the content of a pickle before it becomes a value: a graph, which may share parts. A reader owns its
// nodes.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace accel::checkpoint {

struct PickleNode;
using PickleItems = std::vector<PickleNode*>;

struct PickledName {
  std::string name;  // "collections.OrderedDict"
};
struct PickledLong {
  std::string bytes;  // little-endian, two's complement; more than 64 bits
};
struct PickledList {
  PickleItems items;  // of a set, too
};
struct PickledTuple {
  PickleItems items;
};
struct PickledMap {
  std::vector<std::pair<PickleNode*, PickleNode*>> members;
};
struct PickledRecord {  // an object of a class that the caller knows
  std::string class_name;
  PickleNode* arguments;  // a tuple
  PickleNode* state;      // null if there is none
};
struct PickledStorage {
  at::Storage storage;
  at::ScalarType dtype;  // of its elements; uint8 if the storage has no type
};
struct NumpyDtype {
  at::ScalarType dtype;
};
struct NumpyArray {
  at::Tensor elements;  // undefined until its state is known
};

struct PickleNode {
  // An IValue is None, a bool, number, text, bytes, device, dtype or tensor.
  std::variant<c10::IValue, PickledName, PickledLong, PickledList, PickledTuple, PickledMap, PickledRecord,
               PickledStorage, NumpyDtype, NumpyArray>
      content;

  // Null if the node is of another kind.
  const c10::IValue* value() const { return std::get_if<c10::IValue>(&content); }
  const std::string* text() const;
  const std::string* bytes() const;
  const std::string* name() const;
  const PickleItems* tuple() const;
  const PickleItems* items() const;  // of a tuple or list
  bool is_none() const;
  bool is_true() const;
};

// "tuple", "name", "tensor" and so on, for messages.
std::string kind_of(const PickleNode& node);

}  // namespace accel::checkpoint
