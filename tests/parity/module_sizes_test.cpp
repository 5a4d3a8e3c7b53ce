// Sizes of module trees, from shapes alone.
#include "nn/module_sizes.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fixture.hpp"
#include "nn/callback_module.hpp"
#include "nn/module_shapes.hpp"
#include "tensor/dtype.hpp"

namespace accel::parity {
namespace module_sizes_test {

at::Tensor tensor_of(const c10::IValue& description) {
  const auto dtype = tensor::dtype_from_name(member(description, "dtype").toStringRef());
  return at::empty(integers(member(description, "shape")), at::TensorOptions().dtype(dtype).device(at::kMeta));
}

nn::ModulePtr build(const c10::IValue& description) {
  auto module = std::make_shared<nn::CallbackModule>(member(description, "class").toStringRef());
  const c10::IValue parameters = member(description, "params"), buffers = member(description, "buffers"),
                    children = member(description, "children");
  for (const c10::IValue& one : parameters.toListRef()) {
    const at::Tensor tensor = tensor_of(one);
    module->add_parameter(member(one, "name").toStringRef(), tensor, tensor.is_floating_point());
  }
  for (const c10::IValue& one : buffers.toListRef())
    module->add_buffer(member(one, "name").toStringRef(), tensor_of(one), member(one, "persistent").toBool());
  for (const c10::IValue& child : children.toListRef())
    module->add_child(member(child, "name").toStringRef(), build(child));
  return module;
}

nn::ModulePtr build_tied(const c10::IValue& input) {
  const nn::ModulePtr model = build(member(input, "model"));
  const c10::IValue ties = member(input, "ties");
  for (const c10::IValue& group : ties.toListRef()) {
    const auto names = group.toListRef();
    for (size_t i = 1; i < names.size(); i++) model->tie(names[i].toStringRef(), names[0].toStringRef());
  }
  return model;
}

void check(const nn::Module& model, const c10::IValue& expected) {
  const nn::MaximumSizes sizes = nn::calculate_maximum_sizes(model);
  EXPECT_DOUBLE_EQ(sizes.total, member(expected, "total").toScalar().toDouble());
  EXPECT_DOUBLE_EQ(sizes.largest, member(expected, "largest").toScalar().toDouble());
  std::vector<std::string> names;
  const c10::IValue list = member(expected, "names");
  for (const c10::IValue& name : list.toListRef()) names.push_back(name.toStringRef());
  EXPECT_EQ(sizes.largest_names, names);
}

TEST(ModuleSizes, TotalAndLargestLayer) {
  for (const Case& one : read_cases("module_sizes")) {
    SCOPED_TRACE(one.name);
    const nn::ModulePtr model = build_tied(one.input);
    const c10::IValue expected = member(one.expected, "calculate_maximum_sizes");
    check(*model, expected);
    // A copy of the shapes has the same names and ties.
    check(*nn::shapes_of(*model, [](const at::Tensor& tensor) { return tensor.sizes().vec(); }), expected);
  }
}

}  // namespace module_sizes_test
}  // namespace accel::parity
