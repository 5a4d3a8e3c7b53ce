// SPDX-License-Identifier: Apache-2.0
// Even division of models between accelerators, against Accelerate's get_balanced_memory().
#include <gtest/gtest.h>

#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/infer_device_map.hpp"
#include "fixture.hpp"
#include "module_tree_input.hpp"

namespace accel::parity {
namespace balanced_memory_test {

TEST(BalancedMemory, AsTheReferenceDivides) {
  size_t mended = 0;
  for (const Case& one : read_cases("balanced_memory")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_module_tree(one.input);
    bigmodel::DeviceMapOptions settings = read_size_settings(one.input);
    settings.low_zero = member(one.input, "low_zero").toBool();
    const bigmodel::MaxMemory given =
        bigmodel::read_max_memory(map_of_pairs(member(one.input, "max_memory")), "max_memory");
    const bigmodel::MaxMemory balanced = bigmodel::balanced_memory(*model, given, settings);
    ASSERT_EQ(balanced.size(), given.size());
    if (error_type(one.expected)) {  // with "disk", or with numbers that are not 0, 1, ...: faults of Accelerate
      for (size_t i = 0; i < given.size(); i++) {
        EXPECT_EQ(balanced[i].first, given[i].first);
        EXPECT_LE(balanced[i].second, given[i].second);
      }
      mended++;
      continue;
    }
    const auto expected = member(one.expected, "max_memory").toListRef().vec();
    ASSERT_EQ(balanced.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
      EXPECT_EQ(balanced[i].first, bigmodel::read_place(expected[i].toListRef()[0], "a place"));
      EXPECT_DOUBLE_EQ(balanced[i].second, expected[i].toListRef()[1].toScalar().toDouble());
    }
  }
  EXPECT_GT(mended, 0U);
}

}  // namespace balanced_memory_test
}  // namespace accel::parity
