// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/device_map.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/name_list.hpp"
#include "nn/module_sizes.hpp"
#include "nn/module_walks.hpp"
#include "nn/weight_store.hpp"
#include "tensor/device/device.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

// Entries by the parts of their paths.
class PathTree {
 public:
  explicit PathTree(const DeviceMap& map) {
    nodes_.emplace_back();
    for (size_t i = 0; i < map.size(); i++) insert(map[i].first, map[i].second, i);
  }

  DeviceMap cleaned() {
    DeviceMap map;
    std::vector<std::pair<size_t, size_t>> order;  // of the first entry that each entry of the result stands for
    collect(0, "", map, order);
    std::sort(order.begin(), order.end());
    DeviceMap sorted;
    sorted.reserve(map.size());
    for (const auto& [first, index] : order) sorted.push_back(std::move(map[index]));
    return sorted;
  }

 private:
  struct Node {
    std::string_view name;
    std::string_view place;   // of its own entry; empty if there is none
    size_t first = SIZE_MAX;  // of the entries at and below it
    size_t entries = 0;
    std::string_view common;  // the place of all entries at and below it; empty if there are several
    std::vector<size_t> children;
  };
  struct ChildKey {
    size_t parent;
    std::string_view name;
    bool operator==(const ChildKey& other) const { return parent == other.parent && name == other.name; }
  };
  struct HashOfKey {
    size_t operator()(const ChildKey& key) const {
      return std::hash<std::string_view>()(key.name) ^ (key.parent * 0x9e3779b97f4a7c15U);
    }
  };

  void insert(std::string_view path, std::string_view place, size_t index) {
    size_t node = 0;
    note(node, place, index);
    while (!path.empty()) {
      const size_t dot = path.find('.');
      const std::string_view name = path.substr(0, dot);
      path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
      const auto [known, is_new] = children_.try_emplace({node, name}, nodes_.size());
      if (is_new) {
        nodes_[node].children.push_back(nodes_.size());
        nodes_.emplace_back();
        nodes_.back().name = name;
      }
      node = known->second;
      note(node, place, index);
    }
    nodes_[node].place = place;
  }

  void note(size_t node, std::string_view place, size_t index) {
    Node& noted = nodes_[node];
    noted.common = noted.entries == 0 || noted.common == place ? place : std::string_view();
    noted.first = std::min(noted.first, index);
    noted.entries++;
  }

  void collect(size_t number, const std::string& path, DeviceMap& map, std::vector<std::pair<size_t, size_t>>& order) {
    const Node& node = nodes_[number];
    const auto add = [&](std::string_view place) {
      order.emplace_back(node.first, map.size());
      map.emplace_back(path, place);
    };
    if (node.entries > 1 && !node.common.empty()) return add(node.common);
    if (!node.place.empty()) add(node.place);
    for (const size_t child : node.children)
      collect(child, tree::path_below(path, std::string(nodes_[child].name)), map, order);
  }

  std::vector<Node> nodes_;
  std::unordered_map<ChildKey, size_t, HashOfKey> children_;
};

// The path that is most like a wrong one; not the whole model, unless there is no other.
std::string nearest_path(const std::vector<std::string>& paths, const std::string& path) {
  const auto distance = [&path](const std::string& one) { return one.empty() ? SIZE_MAX : edit_distance(path, one); };
  return *std::min_element(paths.begin(), paths.end(), [&](const std::string& one, const std::string& other) {
    return distance(one) < distance(other);
  });
}

}  // namespace

bool is_accelerator_number(std::string_view place) {
  return !place.empty() && place.size() < 10 &&
         std::all_of(place.begin(), place.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

void check_place(const std::string& place) {
  if (is_accelerator_number(place) || place == "disk" || tensor::find_device(place)) return;
  const size_t colon = place.find(':');
  const bool is_known =
      tensor::find_device_kind(std::string_view(place).substr(0, colon)).has_value() &&
      (colon == std::string::npos || is_accelerator_number(std::string_view(place).substr(colon + 1)));
  require(is_known, Status::kInvalidArgument, "device '", place,
          "' is not known; expected the number of an accelerator, \"disk\", or one of ", tensor::known_devices());
}

const std::string* find_place(const DeviceMap& map, std::string_view path) {
  const std::string* found = nullptr;
  size_t longest = 0;
  for (const auto& [prefix, place] : map) {
    const bool contains = prefix.empty() || (path.substr(0, prefix.size()) == prefix &&
                                             (path.size() == prefix.size() || path[prefix.size()] == '.'));
    if (!contains || (found != nullptr && prefix.size() < longest)) continue;
    found = &place;
    longest = prefix.size();
  }
  return found;
}

DeviceMap clean_device_map(const DeviceMap& map) { return PathTree(map).cleaned(); }

std::vector<std::string> check_device_map(const nn::Module& model, const DeviceMap& map) {
  std::vector<std::string> modules;
  for (const auto& [path, module] : nn::named_modules(model)) modules.push_back(path);
  const std::unordered_set<std::string_view> known(modules.begin(), modules.end());
  std::unordered_set<std::string_view> covered;
  std::vector<std::string> unknown;
  for (const auto& [path, place] : map) {
    check_place(place);
    covered.insert(path);
    if (known.count(path) == 0) unknown.push_back(path);
  }
  std::vector<std::string> without;
  for (const auto& [name, tensor] : model.state_dict()) {
    std::string_view path = name;
    bool has_place = covered.count("") > 0 || covered.count(path) > 0;
    for (size_t dot = path.rfind('.'); !has_place && dot != std::string_view::npos; dot = path.rfind('.')) {
      path = path.substr(0, dot);
      has_place = covered.count(path) > 0;
    }
    if (!has_place) without.push_back(name);
  }
  require(without.empty(), Status::kInvalidArgument, "the device map has no place for ", list_names(without),
          "; give one to each, to a module that contains it, or to \"\", the whole model");
  if (!unknown.empty())
    log(LogLevel::kWarning, "the device map names what is not a module: ", list_names(unknown),
        "; the most similar to '", unknown.front(), "' is '", nearest_path(modules, unknown.front()), "'");
  return unknown;
}

void require_paths(const nn::Module& model, const DeviceMap& map) {
  std::vector<std::string> paths;
  for (const auto& [path, module] : nn::named_modules(model)) paths.push_back(path);
  for (const auto& [name, tensor] : model.state_dict()) paths.push_back(name);
  for (const auto& [name, tensor] : nn::named_buffers(model)) paths.push_back(name);
  const std::unordered_set<std::string_view> known(paths.begin(), paths.end());
  for (const auto& [path, place] : map)
    if (known.count(path) == 0)
      fail(Status::kNotFound, "device_map has '", path, "', which is not in the model; the most similar path is '",
           nearest_path(paths, path), "'");
}

bool is_on_several_devices(const nn::Module& model) {
  for (const auto& [path, module] : nn::named_modules(model))
    if (module->weight_store() != nullptr) return module->weight_store()->is_spread();
  std::optional<c10::Device> device;
  for (const auto& [name, tensor] : nn::named_module_tensors(model, {/*include_buffers=*/true, /*recurse=*/true})) {
    if (device && *device != tensor.device()) return true;
    device = tensor.device();
  }
  return false;
}

nn::TiedGroups tied_in_several_places(const nn::TiedGroups& groups, const DeviceMap& map) {
  nn::TiedGroups split;
  for (const auto& group : groups) {
    std::map<std::string, std::string> places;  // name of one member by place
    for (const std::string& name : group) {
      const std::string* const place = find_place(map, name);
      require(place != nullptr, Status::kInvalidArgument, "the device map has no place for '", name,
              "'; give one to it or to a module that contains it");
      places.emplace(*place, name);
    }
    if (places.size() < 2) continue;
    split.push_back(group);
    log(LogLevel::kWarning, "tied parameters are in several places: '", places.begin()->second, "' on ",
        places.begin()->first, ", '", places.rbegin()->second, "' on ", places.rbegin()->first,
        "; give them one place, or use the device map \"auto\"");
  }
  return split;
}

}  // namespace accel::bigmodel
