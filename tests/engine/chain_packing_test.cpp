// SPDX-License-Identifier: Apache-2.0
// Packings of chains are the best that there are, by trying all of them.
#include "bigmodel/device_map/chain_packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "expect_error.hpp"
#include "random_model.hpp"

namespace accel::bigmodel {
namespace chain_packing_test {

struct Figures {
  double offloaded = 0;
  int64_t changes = 0;
  bool operator<(const Figures& other) const {
    return offloaded != other.offloaded ? offloaded < other.offloaded : changes < other.changes;
  }
};

constexpr size_t kOffloaded = SIZE_MAX;

// The figures of a choice of devices; nothing if it breaks a rule.
std::optional<Figures> figures_of(const std::vector<Link>& chain, const std::vector<size_t>& devices,
                                  const std::vector<double>& limits) {
  std::vector<double> used(limits.size(), 0);
  double largest = 0;
  Figures figures;
  for (size_t i = 0; i < chain.size(); i++) {
    if (i > 0 && devices[i] != devices[i - 1]) figures.changes++;
    if (devices[i] == kOffloaded) {
      figures.offloaded += chain[i].size;
      largest = std::max(largest, chain[i].size);
      continue;
    }
    // One run for each device, in their order.
    for (size_t before = 0; before < i; before++) {
      if (devices[before] == kOffloaded) continue;
      if (devices[before] > devices[i] || (devices[before] == devices[i] && devices[i - 1] != devices[i]))
        return std::nullopt;
    }
    used[devices[i]] += chain[i].size;
  }
  for (size_t device = 0; device < limits.size(); device++)
    if (used[device] > std::max(limits[device] - (device == 0 ? largest : 0), 0.0)) return std::nullopt;
  return figures;
}

Figures best_of_all(const std::vector<Link>& chain, const std::vector<double>& limits) {
  std::optional<Figures> best;
  std::vector<size_t> devices(chain.size(), 0);
  while (true) {
    std::vector<size_t> choice;
    for (const size_t device : devices) choice.push_back(device == limits.size() ? kOffloaded : device);
    const auto figures = figures_of(chain, choice, limits);
    if (figures && (!best || *figures < *best)) best = figures;
    size_t place = 0;
    while (place < devices.size() && devices[place] == limits.size()) devices[place++] = 0;
    if (place == devices.size()) break;
    devices[place]++;
  }
  return best.value();
}

TEST(ChainPacking, NoPackingIsBetter) {
  size_t with_ties = 0, offloading = 0;
  for (uint32_t seed = 0; seed < 1500; seed++) {
    SCOPED_TRACE(seed);
    tests::RandomModel random(seed);
    const nn::ModulePtr model = random.make(2);
    const ModuleTree tree(*model, {}, random.classes());
    const std::vector<Link> chain = chain_of(tree);
    if (chain.size() > 9) continue;
    MaxMemory memory;
    std::vector<double> limits;
    for (int64_t i = random.draw(1, 2); i > 0; i--) {
      limits.push_back(static_cast<double>(random.draw(0, static_cast<int64_t>(tree[0].size))));
      memory.emplace_back(std::to_string(limits.size() - 1), limits.back());
    }
    memory.emplace_back("cpu", tree[0].size);
    const Placement placement = pack_chain(tree, tiers_of(memory, false));
    EXPECT_TRUE(is_valid(tree, placement));
    std::vector<size_t> devices;
    for (const Link& link : chain)
      for (const auto& [node, tier] : placement.placed)
        if (node == link.nodes.front())
          devices.push_back(static_cast<size_t>(tier) < limits.size() ? static_cast<size_t>(tier) : kOffloaded);
    ASSERT_EQ(devices.size(), chain.size());
    const auto figures = figures_of(chain, devices, limits);
    ASSERT_TRUE(figures.has_value()) << "a rule is broken";
    const Figures best = best_of_all(chain, limits);
    EXPECT_EQ(figures->offloaded, best.offloaded);
    EXPECT_EQ(figures->changes, best.changes);
    with_ties += tree.ties().empty() ? 0 : 1;
    offloading += best.offloaded > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(with_ties, 100U);
  EXPECT_GT(offloading, 300U);
}

nn::ModulePtr chain_model(const std::vector<int64_t>& sizes) {
  auto model = std::make_shared<nn::CallbackModule>("Model");
  for (size_t i = 0; i < sizes.size(); i++) {
    auto layer = std::make_shared<nn::CallbackModule>("Layer");
    layer->add_parameter("weight", at::empty({sizes[i]}, at::TensorOptions().dtype(at::kChar).device(at::kMeta)),
                         false);
    model->add_child("l" + std::to_string(i), layer);
  }
  return model;
}

std::vector<std::string> places(const std::vector<int64_t>& sizes, const MaxMemory& memory) {
  const nn::ModulePtr model = chain_model(sizes);
  const ModuleTree tree(*model, {}, {});
  const Placement placement = pack_chain(tree, tiers_of(memory, false));
  std::vector<std::string> found;
  for (const auto& [node, tier] : placement.placed) found.push_back(placement.tiers[static_cast<size_t>(tier)].place);
  return found;
}

using Places = std::vector<std::string>;

TEST(ChainPacking, NothingIsReservedIfAllFits) {
  EXPECT_EQ(places({40, 40, 40}, {{"0", 80}, {"1", 40}}), (Places{"0", "0", "1"}));
}

// Offloading the large first layer would need room for it.
TEST(ChainPacking, ALargeLayerStaysWhereItsRoomWouldBe) {
  EXPECT_EQ(places({60, 10, 10, 10}, {{"0", 80}, {"cpu", 100}}), (Places{"0", "0", "cpu", "cpu"}));
}

TEST(ChainPacking, TheHostKeepsRoomForTheDisk) {
  EXPECT_EQ(places({10, 10, 10, 10}, {{"0", 20}, {"cpu", 25}}), (Places{"0", "cpu", "disk", "disk"}));
  EXPECT_EQ(places({10, 10, 10, 10}, {{"cpu", 30}}), (Places{"cpu", "cpu", "disk", "disk"}));
}

TEST(ChainPacking, AModelOfNothingAndALongOne) {
  const nn::ModulePtr empty = chain_model({});
  const ModuleTree tree(*empty, {}, {});
  EXPECT_TRUE(pack_chain(tree, tiers_of({{"0", 1}}, false)).placed.empty());
  const std::vector<std::string> found = places(std::vector<int64_t>(5000, 3), {{"0", 6003}, {"1", 3000}});
  EXPECT_EQ(std::count(found.begin(), found.end(), "0"), 2000);
  EXPECT_EQ(std::count(found.begin(), found.end(), "1"), 1000);
}

}  // namespace chain_packing_test
}  // namespace accel::bigmodel
