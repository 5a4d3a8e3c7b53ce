// SPDX-License-Identifier: Apache-2.0
// Which items of a queue must be placed together, because parameters in them are tied.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bigmodel/device_map/module_tree.hpp"

namespace accel::bigmodel {

struct TiedItems {
  double size = 0;             // of the item and of those tied to it
  std::vector<int32_t> items;  // those tied to it
};

// The item of the queue that contains a node; nothing if none does.
using ItemOf = std::function<std::optional<int32_t>(int32_t node)>;

// The size of an item, given as `size`, with the items that contain the parameters `tied`, as Accelerate counts:
// each parameter adds its item without itself. Nothing if a parameter is in no item.
std::optional<TiedItems> size_with_ties(const ModuleTree& tree, double size, const std::vector<int32_t>& tied,
                                        const ItemOf& item_of);

class Ties {
 public:
  explicit Ties(const ModuleTree& tree);

  // The parameters outside of an item that are tied to one inside. As in Accelerate, what has the path of the item
  // anywhere in its own path is inside: "mlp.head.weight" is in "head".
  std::vector<int32_t> tied_to(int32_t item) const;

  // An item with all items that ties connect it to, directly or through others. Each tensor counts once.
  TiedItems together_with(int32_t item, const ItemOf& item_of) const;

  // Whether a parameter in the item is tied to one that is not in it.
  bool reach_outside(int32_t item) const;

 private:
  const ModuleTree& tree_;
  std::vector<std::vector<std::string>> paths_;  // of the members of each group, each with a dot at its end
  std::unordered_map<std::string_view, std::vector<size_t>> by_name_;  // groups by the names in the paths
};

}  // namespace accel::bigmodel
