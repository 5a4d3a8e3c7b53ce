// SPDX-License-Identifier: Apache-2.0
// Sizes of module trees, from shapes alone.
#include "nn/module_sizes.hpp"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "fixture.hpp"
#include "module_tree_input.hpp"
#include "nn/module_shapes.hpp"
#include "nn/tied_parameters.hpp"
#include "tensor/dtype.hpp"

namespace accel::parity {
namespace module_sizes_test {

std::map<std::string, double> numbers(const c10::IValue& map) {
  std::map<std::string, double> found;
  for (const auto& entry : map.toGenericDict())
    if (const double bytes = entry.value().toScalar().toDouble(); bytes > 0) found[entry.key().toStringRef()] = bytes;
  return found;
}

// Without names of 0 bytes: Accelerate's map gets those of modules without tensors when it is only read.
std::map<std::string, double> numbers(const nn::ModuleSizes& sizes) {
  std::map<std::string, double> found;
  for (const auto& [name, bytes] : sizes)
    if (bytes > 0) found[name] = bytes;
  return found;
}

void check_maximum(const nn::Module& model, const c10::IValue& expected) {
  const nn::MaximumSizes sizes = nn::calculate_maximum_sizes(model);
  EXPECT_DOUBLE_EQ(sizes.total, member(expected, "total").toScalar().toDouble());
  EXPECT_DOUBLE_EQ(sizes.largest, member(expected, "largest").toScalar().toDouble());
  EXPECT_EQ(sizes.largest_names, texts(member(expected, "names")));
}

TEST(ModuleSizes, TotalAndLargestLayer) {
  for (const Case& one : read_cases("module_sizes")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_module_tree(one.input);
    const c10::IValue expected = member(one.expected, "calculate_maximum_sizes");
    check_maximum(*model, expected);
    // A copy of the shapes has the same names and ties.
    check_maximum(*nn::shapes_of(*model, [](const at::Tensor& tensor) { return tensor.sizes().vec(); }), expected);
  }
}

TEST(ModuleSizes, OfEachModuleAndTensorUnderTheRules) {
  for (const Case& one : read_cases("module_sizes")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_module_tree(one.input);
    const bigmodel::DeviceMapOptions settings = read_size_settings(one.input);
    const nn::SizeRules rules = settings.size_rules();
    const nn::ModuleSizes sizes = nn::compute_module_sizes(*model, rules);
    const nn::ModuleSizes of_buffers = nn::compute_module_sizes(*model, rules, /*buffers_only=*/true);
    EXPECT_EQ(numbers(sizes), numbers(member(one.expected, "sizes")));
    EXPECT_EQ(numbers(of_buffers), numbers(member(one.expected, "buffer_sizes")));
    EXPECT_DOUBLE_EQ(of_buffers.empty() ? 0 : of_buffers.front().second,
                     member(one.expected, "total_buffer_size").toScalar().toDouble());
    std::vector<std::string> leaves;
    for (const std::string& leaf : texts(member(one.expected, "leaves")))
      if (numbers(sizes).count(leaf) > 0) leaves.push_back(leaf);
    EXPECT_EQ(nn::module_leaves(sizes), leaves);
    const nn::LargestLayer layer = nn::largest_layer(*model, sizes, settings.classes());
    EXPECT_DOUBLE_EQ(layer.bytes, member(member(one.expected, "max_layer"), "size").toScalar().toDouble());
    EXPECT_EQ(layer.names, texts(member(member(one.expected, "max_layer"), "names")));
  }
}

TEST(ModuleSizes, TensorsAndTies) {
  for (const Case& one : read_cases("module_sizes")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_module_tree(one.input);
    nn::TiedGroups groups;
    for (const c10::IValue& group : member(one.expected, "tied_groups").toListRef()) groups.push_back(texts(group));
    EXPECT_EQ(nn::find_tied_parameters(*model), groups);

    nn::TensorSelection selection;
    selection.recurse = true;
    const nn::NamedTensors tensors = nn::named_module_tensors(*model, selection);
    const auto expected = member(one.expected, "tensors").toListRef().vec();
    ASSERT_EQ(tensors.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
      const auto described = expected[i].toListRef();
      EXPECT_EQ(tensors[i].first, described[0].toStringRef());
      EXPECT_EQ(tensor::dtype_name(tensors[i].second.scalar_type()), described[1].toStringRef());
      EXPECT_EQ(tensors[i].second.sizes().vec(), integers(described[2]));
    }

    std::vector<std::string> transient = nn::non_persistent_buffers(*model, /*recurse=*/true);
    std::sort(transient.begin(), transient.end());
    std::vector<std::string> recorded = texts(member(one.expected, "non_persistent_buffers"));
    // Accelerate names those of the model itself a second time, with a dot in front.
    recorded.erase(std::remove_if(recorded.begin(), recorded.end(), [](const auto& name) { return name[0] == '.'; }),
                   recorded.end());
    EXPECT_EQ(transient, recorded);
    selection.remove_non_persistent = true;
    EXPECT_EQ(nn::named_module_tensors(*model, selection).size(), tensors.size() - transient.size());
  }
}

}  // namespace module_sizes_test
}  // namespace accel::parity
