// SPDX-License-Identifier: Apache-2.0
// Parts of a model on devices: the state and the result of each way to choose them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bigmodel/device_map/max_memory.hpp"
#include "bigmodel/device_map/module_tree.hpp"

namespace accel::bigmodel {

// A device, the host or the disk, and how full it is.
struct Tier {
  std::string place;
  double limit = std::numeric_limits<double>::infinity();  // bytes
  bool computes_offloaded = false;                         // keeps room for the largest layer that is not on it
  double used = 0;
  std::optional<double> minimum = {};  // needed for a first module, if nothing could be placed
};

enum class StepKind : uint8_t { kPlaced, kFallback, kBuffer, kSplit, kTiedSplit, kNextTier };

// One decision.
struct Step {
  StepKind kind;
  int32_t node;
  int32_t tier;
  double needed;              // bytes, with those tied to it
  double available;           // bytes, without those reserved
  double reserved;            // bytes for the largest layer
  std::vector<int32_t> tied;  // what is placed with it
};

struct Placement {
  std::vector<Tier> tiers;
  std::vector<std::pair<int32_t, int32_t>> placed;  // node, tier
  std::vector<Step> steps;
};

// The tiers of a memory, with the disk at the end unless `without_disk`.
std::vector<Tier> tiers_of(const MaxMemory& memory, bool without_disk);

// Gives buffers, whose modules were split, a place: the first with room from that of the first part of the module on.
void place_buffers(const ModuleTree& tree, const std::vector<int32_t>& buffers, Placement& placement);

// Whether each tier holds what was placed on it, and tied parameters are on one.
bool is_valid(const ModuleTree& tree, const Placement& placement);

// kOutOfMemory: there is no tier left for a node.
[[noreturn]] void fail_without_room(const ModuleTree& tree, int32_t node, double needed,
                                    const std::vector<Tier>& tiers);

}  // namespace accel::bigmodel
