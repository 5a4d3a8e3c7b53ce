#include "data/item_structure.hpp"

#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::data {

ItemBuilder::ItemBuilder(bool has_names) {
  if (has_names) {
    map_ = tree::new_map();
  } else {
    list_ = tree::new_list();
  }
}

void ItemBuilder::add(const std::string& name, Part part) {
  insert(name, std::move(part.value));
  if (part.mask.defined()) insert(name + "_mask", std::move(part.mask));
}

void ItemBuilder::insert(const std::string& name, c10::IValue value) {
  if (list_) {
    list_->push_back(std::move(value));
  } else {
    require(map_->insert(name, std::move(value)).second, Status::kAlreadyExists, "the item has two parts '", name,
            "'; expected one of each name");
  }
}

c10::IValue ItemBuilder::take() {
  if (list_) return *list_;
  return *map_;
}

c10::IValue alone(Part part) {
  if (!part.mask.defined()) return std::move(part.value);
  ItemBuilder both(false);
  both.add({}, std::move(part));
  return both.take();
}

}  // namespace accel::data
