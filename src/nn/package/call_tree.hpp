// SPDX-License-Identifier: Apache-2.0
// The structure of what a package takes and returns, as torch.utils._pytree writes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace accel::nn {

class CallTree {
 public:
  // `document` is a serialized TreeSpec; `source` names it in errors, which are kCorrupt.
  static CallTree parse(const std::string& document, const std::string& source);

  // A leaf, a sequence or a map.
  bool is_leaf() const { return kind_ == Kind::kLeaf; }
  bool is_map() const { return kind_ == Kind::kMap; }
  const std::vector<CallTree>& children() const { return children_; }
  const std::vector<std::string>& keys() const { return keys_; }  // of a map
  size_t leaves() const;

  // Adds the leaves of a value of this structure. `name` is that of the value in errors, which are kInvalidArgument.
  void flatten(const c10::IValue& value, const std::string& name, std::vector<c10::IValue>& leaves) const;
  // The value with these leaves; undefined ones are None. `next` is the first of them.
  c10::IValue unflatten(const std::vector<at::Tensor>& leaves, size_t& next) const;

 private:
  enum class Kind : uint8_t { kLeaf, kList, kTuple, kMap };

  static CallTree read(const Json& node);

  Kind kind_ = Kind::kLeaf;
  std::vector<std::string> keys_;
  std::vector<CallTree> children_;
};

}  // namespace accel::nn
