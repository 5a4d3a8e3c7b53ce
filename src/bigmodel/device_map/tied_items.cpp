// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/tied_items.hpp"

#include <algorithm>

namespace accel::bigmodel {

std::optional<TiedItems> size_with_ties(const ModuleTree& tree, double size, const std::vector<int32_t>& tied,
                                        const ItemOf& item_of) {
  TiedItems found{size, {}};
  for (const int32_t parameter : tied) {
    const auto item = item_of(parameter);
    if (!item) return std::nullopt;
    found.items.push_back(*item);
    found.size += tree[*item].size - tree[parameter].size;
  }
  return found;
}

Ties::Ties(const ModuleTree& tree) : tree_(tree) {
  for (const auto& group : tree.ties()) {
    paths_.emplace_back();
    for (const int32_t member : group) {
      paths_.back().push_back(tree.path(member) + ".");
      for (int32_t node = member; node > 0; node = tree[node].parent) {
        auto& groups = by_name_[tree[node].name];
        if (groups.empty() || groups.back() != paths_.size() - 1) groups.push_back(paths_.size() - 1);
      }
    }
  }
}

std::vector<int32_t> Ties::tied_to(int32_t item) const {
  std::vector<int32_t> tied;
  if (paths_.empty()) return tied;
  const std::string path = tree_.path(item) + ".";
  const auto visit = [&](size_t number) {
    const auto& group = tree_.ties()[number];
    std::vector<int32_t> outside;
    for (size_t i = 0; i < group.size(); i++)
      if (paths_[number][i].find(path) == std::string::npos) outside.push_back(group[i]);
    if (outside.size() < group.size()) tied.insert(tied.end(), outside.begin(), outside.end());
  };
  // The path of a member of the model may begin in the middle of a name; the last name of any other is a whole one.
  if (tree_[item].parent == 0) {
    for (size_t number = 0; number < paths_.size(); number++) visit(number);
  } else if (const auto groups = by_name_.find(tree_[item].name); groups != by_name_.end()) {
    for (const size_t number : groups->second) visit(number);
  }
  return tied;
}

TiedItems Ties::together_with(int32_t item, const ItemOf& item_of) const {
  std::vector<int32_t> items{item};
  const auto is_in_items = [&](int32_t node) {
    return std::any_of(items.begin(), items.end(), [&](int32_t one) { return tree_.contains(one, node); });
  };
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& group : tree_.ties()) {
      if (std::none_of(group.begin(), group.end(), is_in_items)) continue;
      for (const int32_t member : group) {
        if (is_in_items(member)) continue;
        items.push_back(item_of(member).value());
        grows = true;
      }
    }
  }
  TiedItems found;
  for (const int32_t one : items) found.size += tree_[one].size;
  found.items.assign(items.begin() + 1, items.end());
  return found;
}

bool Ties::reach_outside(int32_t item) const {
  return std::any_of(tree_.ties().begin(), tree_.ties().end(), [&](const auto& group) {
    const auto inside =
        std::count_if(group.begin(), group.end(), [&](int32_t member) { return tree_.contains(item, member); });
    return inside > 0 && static_cast<size_t>(inside) < group.size();
  });
}

}  // namespace accel::bigmodel
