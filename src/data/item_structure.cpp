#include "data/item_structure.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

std::string name_of(const c10::IValue& name) { return name.isInt() ? text(name.toInt()) : name.toStringRef(); }

}  // namespace

ItemBuilder::ItemBuilder(bool has_names) : has_names_(has_names) {}

void ItemBuilder::add(const c10::IValue& name, Part part) {
  insert(name, std::move(part.value));
  if (!part.mask.defined()) return;
  insert(has_names_ ? name_of(name) + "_mask" : name, std::move(part.mask));
}

void ItemBuilder::insert(const c10::IValue& name, c10::IValue value) {
  const bool is_new = !has_names_ || std::none_of(parts_.begin(), parts_.end(),
                                                  [&](const auto& part) { return tree::equal(part.first, name); });
  require(is_new, Status::kAlreadyExists, "the item has two parts '", has_names_ ? name_of(name) : "",
          "'; expected one of each name");
  parts_.emplace_back(name, std::move(value));
}

c10::IValue ItemBuilder::take() const {
  if (has_names_) return tree::new_map(parts_);
  auto list = tree::new_list();
  list.reserve(parts_.size());
  for (const auto& [name, value] : parts_) list.push_back(value);
  return list;
}

c10::IValue alone(Part part) {
  if (!part.mask.defined()) return std::move(part.value);
  ItemBuilder both(false);
  both.add({}, std::move(part));
  return both.take();
}

}  // namespace accel::data
