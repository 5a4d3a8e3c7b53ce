// SPDX-License-Identifier: Apache-2.0
// The containers of accel_value_t: an engine's nested value, and the accel_value_t items through which C reads it.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "accel.h"
#include "capi/values/map_key.hpp"

namespace accel::capi {

// A value with a node of its own. `container`: a list, tuple or map.
accel_value_t new_container(c10::IValue container);

// An item of a container, whose text belongs to the container.
accel_value_t borrowed_value(const c10::IValue& item);
void end_borrowed(const accel_value_t& item);

// Refuses an item that would nest a container deeper than every function on values can follow.
void check_nesting(const c10::IValue& item);

}  // namespace accel::capi

// Shared by the accel_value_t that copies of one another are. Several threads may read it at once.
struct accel_value_node {
 public:
  // A list, tuple or map, which is shared, not copied.
  explicit accel_value_node(c10::IValue container);
  ~accel_value_node();
  accel_value_node(const accel_value_node&) = delete;
  accel_value_node& operator=(const accel_value_node&) = delete;

  const c10::IValue& container() const { return container_; }
  int32_t kind() const;
  size_t size() const;
  // The items as accel_value_t, which are made when the first is asked for, and belong to the node.
  const accel_value_t& item(size_t index) const;
  const accel_value_t& key(size_t index) const;
  const accel_value_t* find(const accel::capi::MapKey& key) const;

  void retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
  // Whether that was the last owner; the caller then deletes the node.
  bool release() { return owners_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool has_other_owners() const { return owners_.load(std::memory_order_acquire) > 1; }

  // These change a node with one owner. The container is copied first where the engine, or another value, has it too.
  // Both refuse to nest deeper than every function on values can follow.
  void push(const c10::IValue& item);
  void set(const c10::IValue& key, const c10::IValue& item);

 private:
  struct Items;

  const Items& items() const;
  void own_container();
  template <typename Note>
  void note_change(const Note& note);

  std::atomic<int32_t> owners_{1};
  c10::IValue container_;
  mutable std::atomic<Items*> items_{nullptr};
};
