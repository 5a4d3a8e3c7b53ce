// SPDX-License-Identifier: Apache-2.0
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

ItemBuilder::ItemBuilder(bool has_names) {
  if (!has_names) list_ = tree::new_list();
}

void ItemBuilder::add(const c10::IValue& name, Part part) {
  insert(name, std::move(part.value));
  if (part.mask.defined()) insert(list_ ? name : name_of(name) + "_mask", std::move(part.mask));
}

void ItemBuilder::insert(const c10::IValue& name, c10::IValue value) {
  if (list_) return list_->push_back(std::move(value));
  if (std::any_of(members_.begin(), members_.end(),
                  [&](const auto& member) { return tree::equal(member.first, name); }))
    fail(Status::kAlreadyExists, "the item has two parts '", name_of(name), "'; expected one of each name");
  members_.emplace_back(name, std::move(value));
}

c10::IValue ItemBuilder::take() {
  if (list_) return *std::move(list_);
  return tree::new_map(std::move(members_));
}

c10::IValue alone(Part part) {
  if (!part.mask.defined()) return std::move(part.value);
  ItemBuilder both(false);
  both.add({}, std::move(part));
  return both.take();
}

}  // namespace accel::data
