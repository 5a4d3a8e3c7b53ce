// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/largest_layers.hpp"

namespace accel::bigmodel {

LargestLayers::LargestLayers(const ModuleTree& tree, const std::vector<int32_t>& queue)
    : tree_(tree), seen_(static_cast<size_t>(tree.size()), -1) {
  for (const int32_t item : queue) {
    enqueue(item);
    const bool is_module = tree[item].kind == NodeKind::kModule;
    const double bytes = is_module ? tree[item].largest_layer : tree[item].size;
    if (bytes < bytes_) continue;
    if (bytes > bytes_) left_ = 0;
    bytes_ = bytes;
    left_ += is_module ? tree[item].largest_layers : 1;
  }
}

void LargestLayers::count(int32_t item, int64_t change) {
  if (tree_[item].kind != NodeKind::kModule) return;
  const auto place = by_size_.try_emplace(tree_[item].largest_layer, 0).first;
  place->second += change * tree_[item].largest_layers;
  if (place->second == 0) by_size_.erase(place);
}

void LargestLayers::look_at(int32_t item) {
  int32_t& seen = seen_[static_cast<size_t>(item)];
  if (seen != measurement_) {
    seen = measurement_;
    const Node& node = tree_[item];
    if (node.kind == NodeKind::kModule)
      left_ -= node.largest_layer == bytes_ ? node.largest_layers : 0;
    else if (measurement_ == 0 && node.parent == 0)
      left_ -= node.size == bytes_ ? 1 : 0;
  }
  if (left_ == 0) measure_without(item);
}

void LargestLayers::replaced(int32_t item) {
  tree_.for_each_member(item,
                        [&](int32_t member) { seen_[static_cast<size_t>(member)] = seen_[static_cast<size_t>(item)]; });
}

void LargestLayers::measure_without(int32_t item) {
  measure_again();
  seen_[static_cast<size_t>(item)] = measurement_;
}

void LargestLayers::measure_again() {
  measurement_++;
  bytes_ = by_size_.empty() ? 0 : by_size_.rbegin()->first;
  left_ = by_size_.empty() ? 0 : by_size_.rbegin()->second;
}

}  // namespace accel::bigmodel
