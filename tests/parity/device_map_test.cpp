// SPDX-License-Identifier: Apache-2.0
// Where the parts of models are placed, against Accelerate's infer_auto_device_map().
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/infer_device_map.hpp"
#include "fixture.hpp"
#include "module_tree_input.hpp"
#include "nn/module_sizes.hpp"
#include "nn/module_walks.hpp"
#include "nn/tied_parameters.hpp"

namespace accel::parity {
namespace device_map_test {

using bigmodel::DeviceMap;

DeviceMap map_of(const c10::IValue& pairs) {
  DeviceMap map;
  for (const c10::IValue& pair : pairs.toListRef())
    map.emplace_back(pair.toListRef()[0].toStringRef(), bigmodel::read_place(pair.toListRef()[1], "a place"));
  return map;
}

DeviceMap sorted(DeviceMap map) {
  std::sort(map.begin(), map.end());
  return map;
}

// What is wrong with a map: a limit that does not hold, or tied parameters that are not together. Tensors without a
// place, which Accelerate leaves, are on no device.
std::string problem_of(const nn::Module& model, const DeviceMap& map, const bigmodel::MaxMemory& memory,
                       const bigmodel::DeviceMapOptions& settings) {
  const nn::SizeRules rules = settings.size_rules();
  std::map<std::string, double> used;
  nn::TensorSelection all;
  all.recurse = true;
  for (const auto& [name, tensor] : nn::named_module_tensors(model, all)) {
    const std::string* const place = bigmodel::find_place(map, name);
    if (place != nullptr) used[*place] += rules.bytes_of(name, tensor);
  }
  for (const auto& [place, bytes] : memory)
    if (place != "disk" && used[place] > bytes) return place + " has more than its limit";
  return bigmodel::tied_in_several_places(nn::find_tied_parameters(model), map).empty() ? "" : "ties are split";
}

void expect_complete(const nn::Module& model, const DeviceMap& map) {
  nn::TensorSelection all;
  all.recurse = true;
  for (const auto& [name, tensor] : nn::named_module_tensors(model, all))
    EXPECT_NE(bigmodel::find_place(map, name), nullptr) << name;
}

TEST(DeviceMap, AsTheReferencePlacesModels) {
  size_t compared = 0, completed = 0, mended = 0;
  for (const Case& one : read_cases("device_map")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_module_tree(one.input);
    bigmodel::DeviceMapOptions settings = read_size_settings(one.input);
    settings.offload_buffers = member(one.input, "offload_buffers").toBool();
    settings.fallback_allocation = member(one.input, "fallback_allocation").toBool();
    settings.clean_result = false;
    const bigmodel::MaxMemory memory =
        bigmodel::read_max_memory(map_of_pairs(member(one.input, "max_memory")), "max_memory");
    const bigmodel::InferredDeviceMap inferred = bigmodel::infer_device_map(*model, memory, settings, true);
    expect_complete(*model, inferred.map);
    EXPECT_EQ(problem_of(*model, inferred.map, memory, settings), "");
    const bool has_failed = error_type(one.expected).has_value();
    EXPECT_EQ(error_type(one.expected).value_or("IndexError"), "IndexError");
    const DeviceMap expected = has_failed ? DeviceMap() : map_of(member(one.expected, "placement_order"));
    // Faults of Accelerate: any valid map is an answer.
    if (has_failed || !problem_of(*model, expected, memory, settings).empty()) {
      mended++;
      continue;
    }
    compared++;
    // Direct buffers of split modules, which Accelerate loses, are behind what it placed.
    ASSERT_GE(inferred.map.size(), expected.size());
    const auto end = inferred.map.begin() + static_cast<std::ptrdiff_t>(expected.size());
    EXPECT_EQ(DeviceMap(inferred.map.begin(), end), expected);
    for (auto entry = end; entry != inferred.map.end(); ++entry) {
      const auto buffers = nn::named_buffers(*model);
      EXPECT_TRUE(
          std::any_of(buffers.begin(), buffers.end(), [&](const auto& one) { return one.first == entry->first; }));
      completed++;
    }
    DeviceMap cleaned;
    for (const auto& entry : member(one.expected, "device_map").toGenericDict())
      cleaned.emplace_back(entry.key().toStringRef(), bigmodel::read_place(entry.value(), "a place"));
    if (end == inferred.map.end()) {
      EXPECT_TRUE(member(one.expected, "check").isString());
      EXPECT_EQ(sorted(bigmodel::clean_device_map(inferred.map)), sorted(cleaned));
    }
    EXPECT_EQ(inferred.buffers_may_not_fit, member(one.expected, "buffer_warning").toBool());
    std::map<std::string, double> minimums;
    for (const auto& entry : member(one.expected, "minimum_for_empty_devices").toGenericDict())
      minimums[entry.key().toStringRef()] = entry.value().toScalar().toDouble();
    EXPECT_EQ((std::map<std::string, double>(inferred.minimum_memory.begin(), inferred.minimum_memory.end())),
              minimums);
  }
  EXPECT_GT(compared, 100U);
  EXPECT_GT(completed, 0U);
  EXPECT_GT(mended, 0U);
}

}  // namespace device_map_test
}  // namespace accel::parity
