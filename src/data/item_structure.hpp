// Items with several parts: maps where the parts have names, else lists. The mask of a padded part stands under
// "<name>_mask", or behind the part.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>

namespace accel::data {

// A part, and the mask of its filling where it was padded and one was asked for.
struct Part {
  c10::IValue value;
  at::Tensor mask;
};

class ItemBuilder {
 public:
  explicit ItemBuilder(bool has_names);
  void add(const std::string& name, Part part);
  c10::IValue take();

 private:
  void insert(const std::string& name, c10::IValue value);

  std::optional<c10::impl::GenericDict> map_;
  std::optional<c10::List<c10::IValue>> list_;
};

// A part that stands alone: itself, or the list [part, mask].
c10::IValue alone(Part part);

}  // namespace accel::data
