// SPDX-License-Identifier: Apache-2.0
// Cleaning and checking device maps, reading memories, and sizes with ties, against Accelerate.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/tied_items.hpp"
#include "fixture.hpp"
#include "module_tree_input.hpp"

namespace accel::parity {
namespace device_map_checks_test {

using bigmodel::DeviceMap;

DeviceMap sorted_map(const c10::IValue& value) {
  DeviceMap map = bigmodel::read_device_map(value, "device_map");
  std::sort(map.begin(), map.end());
  return map;
}

DeviceMap read_pairs(const c10::IValue& pairs) { return bigmodel::read_device_map(map_of_pairs(pairs), "device_map"); }

void check_clean(const Case& one) {
  DeviceMap cleaned = bigmodel::clean_device_map(read_pairs(member(one.input, "device_map")));
  std::sort(cleaned.begin(), cleaned.end());
  EXPECT_EQ(cleaned, sorted_map(member(one.expected, "device_map")));
}

// The names behind the last colon of Accelerate's message, in any order.
std::set<std::string> names_in(const std::string& message) {
  std::set<std::string> names;
  std::string rest = message.substr(message.rfind(':') + 2) + ", ";
  for (size_t end = rest.find(", "); end != std::string::npos; end = rest.find(", ")) {
    names.insert(rest.substr(0, end));
    rest.erase(0, end + 2);
  }
  return names;
}

void check_coverage(const Case& one) {
  const nn::ModulePtr model = build_module_tree(one.input);
  const DeviceMap map = read_pairs(member(one.input, "device_map"));
  try {
    const std::vector<std::string> unknown = bigmodel::check_device_map(*model, map);
    ASSERT_FALSE(error_type(one.expected)) << "Accelerate finds tensors without a device";
    const auto warnings = texts(member(one.expected, "warnings"));
    ASSERT_EQ(unknown.empty(), warnings.empty());
    std::string list;
    for (const std::string& path : unknown) list += (list.empty() ? "'" : ", '") + path + "'";
    if (unknown.empty()) return;
    EXPECT_NE(warnings[0].find("[" + list + "]"), std::string::npos) << list << " " << warnings[0];
  } catch (const Error& error) {
    ASSERT_TRUE(error_type(one.expected)) << error.message();
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    const auto names = names_in(member(member(one.expected, "error"), "message").toStringRef());
    if (names.size() > 8) return;  // our message is shorter
    for (const std::string& name : names)
      EXPECT_NE(error.message().find("'" + name + "'"), std::string::npos) << error.message();
  }
}

void check_max_memory(const Case& one) {
  try {
    const bigmodel::MaxMemory memory =
        bigmodel::read_max_memory(map_of_pairs(member(one.input, "max_memory")), "max_memory");
    ASSERT_FALSE(error_type(one.expected)) << "Accelerate refuses it";
    const auto expected = member(one.expected, "max_memory").toListRef().vec();
    ASSERT_EQ(memory.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
      EXPECT_EQ(memory[i].first, bigmodel::read_place(expected[i].toListRef()[0], "a place"));
      EXPECT_DOUBLE_EQ(memory[i].second, expected[i].toListRef()[1].toScalar().toDouble());
    }
  } catch (const Error& error) {
    EXPECT_TRUE(error_type(one.expected)) << error.message();
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
  }
}

int32_t node_of(const bigmodel::ModuleTree& tree, const std::string& path) {
  for (int32_t node = 0; node < tree.size(); node++)
    if (tree.path(node) == path) return node;
  ADD_FAILURE() << path << " is not in the model";
  return 0;
}

void check_size_with_ties(const Case& one) {
  const nn::ModulePtr model = build_module_tree(one.input);
  const bigmodel::ModuleTree tree(*model, {}, {});
  std::vector<int32_t> tied, queue;
  for (const std::string& name : texts(member(one.input, "tied_params"))) tied.push_back(node_of(tree, name));
  for (const std::string& name : texts(member(one.input, "queue"))) queue.push_back(node_of(tree, name));
  const auto item_of = [&](int32_t node) -> std::optional<int32_t> {
    const auto item =
        std::find_if(queue.begin(), queue.end(), [&](int32_t one_item) { return tree.contains(one_item, node); });
    return item == queue.end() ? std::nullopt : std::optional(*item);
  };
  const auto found =
      bigmodel::size_with_ties(tree, member(one.input, "module_size").toScalar().toDouble(), tied, item_of);
  ASSERT_TRUE(found.has_value());
  EXPECT_DOUBLE_EQ(found->size, member(one.expected, "size").toScalar().toDouble());
  std::vector<std::string> names;
  for (const int32_t item : found->items) names.push_back(tree.path(item));
  EXPECT_EQ(names, texts(member(one.expected, "tied_module_names")));
}

TEST(DeviceMapChecks, AsTheReference) {
  std::set<std::string> operations;
  for (const Case& one : read_cases("device_map_helpers")) {
    SCOPED_TRACE(one.name);
    const std::string& operation = operations.insert(member(one.input, "operation").toStringRef()).first->data();
    if (operation == "clean_device_map")
      check_clean(one);
    else if (operation == "check_device_map")
      check_coverage(one);
    else if (operation == "get_max_memory")
      check_max_memory(one);
    else if (operation == "get_module_size_with_ties")
      check_size_with_ties(one);
    else
      ADD_FAILURE() << "the fixture has " << operation << ", which this test does not know";
  }
  EXPECT_EQ(operations.size(), 4U);
}

}  // namespace device_map_checks_test
}  // namespace accel::parity
