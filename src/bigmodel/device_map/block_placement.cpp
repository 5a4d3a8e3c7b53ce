// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/block_placement.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::bigmodel {
namespace {

constexpr int32_t kNowhere = -1;

// The tier of each node; that of an inner entry wins.
std::vector<int32_t> tiers_by_node(const ModuleTree& tree, const Placement& placement) {
  std::vector<int32_t> tiers(static_cast<size_t>(tree.size()), kNowhere);
  for (const auto& [node, tier] : placement.placed)
    std::fill(tiers.begin() + node, tiers.begin() + tree[node].end, tier);
  return tiers;
}

int32_t first_tier_in(const ModuleTree& tree, int32_t module, const std::vector<int32_t>& tiers) {
  for (int32_t node = module; node < tree[module].end; node++)
    if (tiers[static_cast<size_t>(node)] != kNowhere) return tiers[static_cast<size_t>(node)];
  return 0;
}

}  // namespace

std::vector<Tier> tiers_of(const MaxMemory& memory, bool without_disk) {
  std::vector<Tier> tiers;
  for (const auto& [place, bytes] : memory)
    if (place != "disk") tiers.push_back({place, bytes});
  if (!without_disk) tiers.push_back({"disk"});
  // Layers of the host's memory and of the disk are computed on the first accelerator, those of the disk on the host if
  // there is none. An accelerator that shares the host's memory has them there.
  const auto of_host = std::find_if(tiers.begin(), tiers.end(), [](const Tier& tier) { return tier.place == "mps"; });
  if (of_host != tiers.end()) {
    of_host->computes_offloaded = true;
    return tiers;
  }
  if (!tiers.empty() && is_accelerator(tiers.front().place)) tiers.front().computes_offloaded = true;
  for (Tier& tier : tiers)
    if (tier.place == "cpu") tier.computes_offloaded = true;
  return tiers;
}

void place_buffers(const ModuleTree& tree, const std::vector<int32_t>& buffers, Placement& placement) {
  if (buffers.empty()) return;
  const std::vector<int32_t> tiers = tiers_by_node(tree, placement);
  for (const int32_t buffer : buffers) {
    const double needed = tree[buffer].size;
    auto tier = placement.tiers.begin() + first_tier_in(tree, tree[buffer].parent, tiers);
    while (tier != placement.tiers.end() && tier->used + needed > tier->limit) ++tier;
    if (tier == placement.tiers.end()) fail_without_room(tree, buffer, needed, placement.tiers);
    const auto number = static_cast<int32_t>(tier - placement.tiers.begin());
    placement.steps.push_back({StepKind::kBuffer, buffer, number, needed, tier->limit - tier->used, 0, {}});
    placement.placed.emplace_back(buffer, number);
    tier->used += needed;
  }
}

bool is_valid(const ModuleTree& tree, const Placement& placement) {
  const std::vector<int32_t> tiers = tiers_by_node(tree, placement);
  std::vector<double> used(placement.tiers.size(), 0);
  for (const auto& [node, tier] : placement.placed) used[static_cast<size_t>(tier)] += tree[node].size;
  for (size_t i = 0; i < used.size(); i++)
    if (used[i] > placement.tiers[i].limit) return false;
  return std::all_of(tree.ties().begin(), tree.ties().end(), [&](const auto& group) {
    return std::all_of(group.begin(), group.end(), [&](int32_t member) {
      return tiers[static_cast<size_t>(member)] == tiers[static_cast<size_t>(group.front())];
    });
  });
}

void fail_without_room(const ModuleTree& tree, int32_t node, double needed, const std::vector<Tier>& tiers) {
  std::string free;
  for (const Tier& tier : tiers)
    free +=
        text(free.empty() ? "" : ", ", tier.place, " has ", static_cast<int64_t>(std::max(tier.limit - tier.used, 0.0)),
             " left of ", static_cast<int64_t>(tier.limit));
  fail(Status::kOutOfMemory, "'", tree.path(node), "' needs ", static_cast<int64_t>(needed), " bytes; ", free,
       "; give more max_memory, or allow the disk");
}

}  // namespace accel::bigmodel
