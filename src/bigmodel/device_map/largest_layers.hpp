// SPDX-License-Identifier: Apache-2.0
// The size of the largest layer that is still to be placed: what a device that computes with offloaded layers keeps
// free.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "bigmodel/device_map/module_tree.hpp"

namespace accel::bigmodel {

// Follows a queue. The size stays, as in Accelerate, until the last of the largest layers has been looked at, even
// if they were placed before with others.
class LargestLayers {
 public:
  // A queue of the members of the model. Its tensors count as layers until the size changes for the first time.
  LargestLayers(const ModuleTree& tree, const std::vector<int32_t>& queue);

  double bytes() const { return bytes_; }

  // An item comes into the queue, or leaves it.
  void enqueue(int32_t item) { count(item, 1); }
  void dequeue(int32_t item) { count(item, -1); }
  // An item that has left the queue is looked at.
  void look_at(int32_t item);
  // An item was replaced by its members.
  void replaced(int32_t item);
  // The size follows from the queue.
  void measure() { measure_again(); }
  // Measures while an item that is looked at is outside of the queue.
  void measure_without(int32_t item);

 private:
  void count(int32_t item, int64_t change);
  void measure_again();

  const ModuleTree& tree_;
  double bytes_ = 0;
  int64_t left_ = 0;  // largest layers that were not looked at
  std::map<double, int64_t>
      by_size_;  // of the modules in the queue: how many layers are the largest of one, by their size
  int32_t measurement_ = 0;
  std::vector<int32_t> seen_;  // by node: the measurement since which it has been looked at
};

}  // namespace accel::bigmodel
