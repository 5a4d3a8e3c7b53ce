// SPDX-License-Identifier: Apache-2.0
// Structured items: maps where the parts have names, else lists. The mask of a padded part is stored under
// "<name>_mask", or after the part.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>
#include <vector>

namespace accel::data {

// A part, and the mask of its filling where it was padded and one was asked for.
struct Part {
  c10::IValue value;
  at::Tensor mask;
};

class ItemBuilder {
 public:
  explicit ItemBuilder(bool has_names);
  // The name is a string or an integer; of a part in a list it is not looked at.
  void add(const c10::IValue& name, Part part);
  c10::IValue take();

 private:
  void insert(const c10::IValue& name, c10::IValue value);

  std::optional<c10::List<c10::IValue>> list_;                // of parts without names
  std::vector<std::pair<c10::IValue, c10::IValue>> members_;  // of those that have them
};

// An item of a single part: the part, or the list [part, mask].
c10::IValue alone(Part part);

}  // namespace accel::data
