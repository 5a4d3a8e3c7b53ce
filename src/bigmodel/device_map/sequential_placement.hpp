// SPDX-License-Identifier: Apache-2.0
// Fills one device after the other, in the order of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bigmodel/device_map/block_placement.hpp"
#include "bigmodel/device_map/largest_layers.hpp"
#include "bigmodel/device_map/tied_items.hpp"

namespace accel::bigmodel {

// How items with tied parameters are placed together.
enum class TieRule {
  kAsReference,  // with the queued items of the tied parameters, as Accelerate finds and counts them
  kConnected,    // with all items that ties connect, each tensor counted once
};

// [Note: sequential placement] The queue begins with the members of the model. Its first item, with those that are tied
// to it, goes to the current device if it fits beside the room that is reserved for the largest layer. Otherwise one of
// the items that are tied to it is replaced by its members, or it is itself; if neither can be, the next device is the
// current one. Accelerate loses direct buffers of modules that were replaced: they are placed at the end.
//
// Accelerate fails when a tied parameter has left the queue, and can count a tied parameter too little. The rule
// kAsReference gives no result then; kConnected always has a valid one.
class SequentialPlacement {
 public:
  SequentialPlacement(const ModuleTree& tree, const Ties& ties, std::vector<Tier> tiers, TieRule rule,
                      bool fallback_allocation);

  // Nothing if the rule cannot place the model.
  std::optional<Placement> run();

 private:
  Tier& tier() { return placement_.tiers[static_cast<size_t>(current_)]; }
  bool is_queued(int32_t node) const { return queued_[static_cast<size_t>(node)]; }
  std::optional<int32_t> item_of(int32_t node) const;

  int32_t pop_front();
  void push_front(int32_t item);
  void remove(int32_t item);
  void replace_by_members(int32_t item);
  void insert_members(int32_t item, std::vector<int32_t>::iterator place);

  void treat(int32_t item);
  std::optional<TiedItems> with_ties(int32_t item) const;
  void place(const Step& step);
  bool split_tied(const Step& step);
  void split(const Step& step);
  bool take_fallback(const Step& step);
  std::optional<int32_t> find_fallback(double limit);
  void use_next_tier(const Step& step);

  const ModuleTree& tree_;
  const Ties& ties_;
  const TieRule rule_;
  const bool fallback_allocation_;
  std::vector<int32_t> queue_;  // the first item at the end; may have items that left it
  std::vector<bool> queued_;    // by node
  LargestLayers largest_layers_;
  Placement placement_;
  int32_t current_ = 0;
  std::vector<int32_t> fallbacks_;  // items that were taken before their turn
  bool has_failed_ = false;
  std::vector<int32_t> left_buffers_;  // of modules that were replaced
};

}  // namespace accel::bigmodel
