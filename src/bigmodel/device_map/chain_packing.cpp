// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/chain_packing.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace accel::bigmodel {
namespace {

// Layers, and tensors of modules that are split, in the order of the model.
void collect_layers(const ModuleTree& tree, int32_t node, std::vector<int32_t>& layers) {
  if (node != 0 && !tree[node].may_split) return layers.push_back(node);
  tree.for_each_member(node, [&](int32_t member) { collect_layers(tree, member, layers); });
}

// Sets of layers that ties connect; the first layer of each stands for it.
class ConnectedLayers {
 public:
  explicit ConnectedLayers(size_t size) : parents_(size) { std::iota(parents_.begin(), parents_.end(), 0); }
  size_t first(size_t layer) {
    while (parents_[layer] != layer) layer = parents_[layer] = parents_[parents_[layer]];
    return layer;
  }
  void join(size_t one, size_t other) {
    const size_t a = first(one), b = first(other);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parents_;
};

struct Cost {
  double offloaded = 0;
  int64_t changes = 0;  // between neighbours that are not on one device
  bool operator<(const Cost& other) const {
    return std::tie(offloaded, changes) < std::tie(other.offloaded, other.changes);
  }
  Cost plus(double bytes, int64_t more_changes) const { return {offloaded + bytes, changes + more_changes}; }
};

constexpr int32_t kOffloaded = -1;

// The devices that are filled with runs.
struct RunDevices {
  std::vector<double> limits;
  size_t with_room = 0;  // which keeps room for the largest offloaded link
  bool may_offload = true;
};

// The best packing if no offloaded link is larger than `room`.
class RunSearch {
 public:
  RunSearch(const std::vector<Link>& chain, const RunDevices& devices, double room)
      : chain_(chain),
        devices_(devices),
        room_(room),
        sums_(chain.size() + 1, 0),
        runs_((chain.size() + 1) * (devices.limits.size() + 1)),
        offloads_(runs_.size()) {
    for (size_t i = 0; i < chain.size(); i++) sums_[i + 1] = sums_[i] + chain[i].size;
    for (size_t device = devices.limits.size() + 1; device-- > 0;) {
      runs_[number_of(chain.size(), device)].is_possible = true;
      for (size_t link = chain.size(); link-- > 0;) {
        runs_[number_of(link, device)] = best_run(link, device);
        offloads_[number_of(link, device)] = best_offload(link, device);
      }
    }
  }

  bool has_packing() const { return best(0, 0).is_possible; }
  Cost cost() const { return best(0, 0).cost; }

  // The device of each link, or kOffloaded.
  std::vector<int32_t> devices_of_links() const {
    std::vector<int32_t> found;
    size_t device = 0;
    while (found.size() < chain_.size()) {
      const Part& part = best(found.size(), device, found.empty() ? kOffloaded - 1 : found.back());
      found.resize(part.end, part.device);
      if (part.device != kOffloaded) device = static_cast<size_t>(part.device) + 1;
    }
    return found;
  }

 private:
  // The first part of the best packing of a link and those behind it.
  struct Part {
    bool is_possible = false;
    Cost cost = {};  // without the change before it
    size_t end = 0;  // one past its links
    int32_t device = kOffloaded;
  };
  using Parts = std::vector<Part>;  // by link and first device

  size_t number_of(size_t link, size_t device) const { return device * (chain_.size() + 1) + link; }

  static const Part& better(const Part& one, const Part& other, int64_t changes_of_other) {
    if (!other.is_possible) return one;
    return !one.is_possible || other.cost.plus(0, changes_of_other) < one.cost ? other : one;
  }

  // After a link on `previous`; anything but kOffloaded: a change in any case.
  const Part& best(size_t link, size_t device, int32_t previous = kOffloaded - 1) const {
    const Part &run = runs_[number_of(link, device)], &offload = offloads_[number_of(link, device)];
    return previous == kOffloaded ? better(offload, run, 1) : better(run, offload, 0);
  }

  Part best_run(size_t link, size_t device) const {
    if (device == devices_.limits.size()) return {};
    const Part& later = runs_[number_of(link, device + 1)];
    const double limit = std::max(devices_.limits[device] - (device == devices_.with_room ? room_ : 0), 0.0);
    const auto behind = std::upper_bound(sums_.begin(), sums_.end(), sums_[link] + limit);
    if (behind <= sums_.begin() + static_cast<std::ptrdiff_t>(link) + 1) return later;
    const auto end = static_cast<size_t>(behind - sums_.begin()) - 1;
    const Part& rest = best(end, device + 1);
    const Part run{rest.is_possible, rest.cost.plus(0, end < chain_.size() ? 1 : 0), end, static_cast<int32_t>(device)};
    return better(run, later, 0);
  }

  Part best_offload(size_t link, size_t device) const {
    if (!devices_.may_offload || chain_[link].size > room_) return {};
    const Part& rest = best(link + 1, device, kOffloaded);
    const int64_t changes = link + 1 < chain_.size() && rest.device != kOffloaded ? 1 : 0;
    return {rest.is_possible, rest.cost.plus(chain_[link].size, changes), link + 1, kOffloaded};
  }

  const std::vector<Link>& chain_;
  const RunDevices& devices_;
  const double room_;
  std::vector<double> sums_;  // of the sizes of the links before each
  Parts runs_, offloads_;
};

double largest_offloaded(const std::vector<Link>& chain, const std::vector<int32_t>& tiers) {
  double largest = 0;
  for (size_t i = 0; i < chain.size(); i++)
    if (tiers[i] == kOffloaded) largest = std::max(largest, chain[i].size);
  return largest;
}

// Gives offloaded links the host as far as it has room, and the disk.
void spread_offloaded(const ModuleTree& tree, const std::vector<Link>& chain, const std::vector<Tier>& tiers,
                      int32_t first, std::vector<int32_t>& found) {
  double total = 0;
  for (size_t i = 0; i < chain.size(); i++) total += found[i] == kOffloaded ? chain[i].size : 0;
  const Tier& host = tiers[static_cast<size_t>(first)];
  const double room = total <= host.limit ? 0 : largest_offloaded(chain, found);
  const bool has_next = static_cast<size_t>(first) + 1 < tiers.size();
  double used = 0;
  for (size_t i = 0; i < chain.size(); i++) {
    if (found[i] != kOffloaded) continue;
    const bool fits = used + chain[i].size <= host.limit - room;
    if (!fits && !has_next) fail_without_room(tree, chain[i].nodes.front(), total, tiers);
    found[i] = fits ? first : first + 1;
    used += fits ? chain[i].size : 0;
  }
}

}  // namespace

std::vector<Link> chain_of(const ModuleTree& tree) {
  std::vector<int32_t> layers;
  collect_layers(tree, 0, layers);
  const auto layer_of = [&](int32_t node) {
    return static_cast<size_t>(std::upper_bound(layers.begin(), layers.end(), node) - layers.begin()) - 1;
  };
  ConnectedLayers connected(layers.size());
  for (const auto& group : tree.ties())
    for (const int32_t member : group) connected.join(layer_of(group.front()), layer_of(member));
  std::vector<Link> chain;
  std::vector<size_t> links(layers.size());  // by first layer
  for (size_t i = 0; i < layers.size(); i++) {
    const size_t first = connected.first(i);
    if (first == i) {
      links[i] = chain.size();
      chain.emplace_back();
    }
    Link& link = chain[links[first]];
    link.nodes.push_back(layers[i]);
    link.size += tree[layers[i]].size;
  }
  return chain;
}

Placement pack_chain(const ModuleTree& tree, const std::vector<Tier>& tiers) {
  const std::vector<Link> chain = chain_of(tree);
  RunDevices devices;
  while (devices.limits.size() < tiers.size() && is_accelerator(tiers[devices.limits.size()].place))
    devices.limits.push_back(tiers[devices.limits.size()].limit);
  if (devices.limits.empty() && !tiers.empty() && tiers.front().place == "cpu")
    devices.limits.push_back(tiers.front().limit);
  for (size_t i = devices.limits.size(); i-- > 0;)
    if (tiers[i].computes_offloaded) devices.with_room = i;
  const auto first_offload = static_cast<int32_t>(devices.limits.size());
  devices.may_offload = devices.limits.size() < tiers.size();

  std::set<double> rooms{0};
  for (const Link& link : chain) rooms.insert(link.size);
  std::vector<int32_t> found;
  Cost lowest;
  for (const double room : rooms) {
    const RunSearch search(chain, devices, room);
    if (!search.has_packing() || (!found.empty() && !(search.cost() < lowest))) continue;
    lowest = search.cost();
    found = search.devices_of_links();
  }
  if (found.empty() && !chain.empty()) {
    const auto largest = std::max_element(chain.begin(), chain.end(),
                                          [](const Link& one, const Link& other) { return one.size < other.size; });
    fail_without_room(tree, largest->nodes.front(), largest->size, tiers);
  }

  Placement placement;
  placement.tiers = tiers;
  const double room = largest_offloaded(chain, found);
  if (devices.may_offload) spread_offloaded(tree, chain, tiers, first_offload, found);
  for (size_t i = 0; i < chain.size(); i++) {
    Tier& tier = placement.tiers[static_cast<size_t>(found[i])];
    const double reserved = static_cast<size_t>(found[i]) == devices.with_room ? room : 0;
    placement.steps.push_back({StepKind::kPlaced,
                               chain[i].nodes.front(),
                               found[i],
                               chain[i].size,
                               tier.limit - tier.used - reserved,
                               reserved,
                               {chain[i].nodes.begin() + 1, chain[i].nodes.end()}});
    tier.used += chain[i].size;
    for (const int32_t node : chain[i].nodes) placement.placed.emplace_back(node, found[i]);
  }
  return placement;
}

}  // namespace accel::bigmodel
