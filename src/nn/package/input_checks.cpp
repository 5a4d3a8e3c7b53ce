// SPDX-License-Identifier: Apache-2.0
#include "nn/package/input_checks.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

Json::Items items_of(const Json& object, const char* key) {
  const Json* const member = json_member(object, key);
  return member == nullptr || member->items() == nullptr ? Json::Items() : *member->items();
}

bool is_constant(const Json& constant, const c10::IValue& value) {
  if (constant.is_null()) return value.isNone();
  if (constant.flag() != nullptr) return value.isBool() && value.toBool() == *constant.flag();
  if (constant.text() != nullptr) return value.isString() && value.toStringRef() == *constant.text();
  if (value.isInt())
    return constant.integer() == value.toInt() || constant.number() == static_cast<double>(value.toInt());
  return value.isDouble() && constant.number() == value.toDouble();
}

}  // namespace

InputChecks::InputChecks(const Json& description, c10::Device device, const std::string& source) : device_(device) {
  if (description.members() == nullptr) return;
  for (const Json& name : items_of(description, "names")) names_.push_back(name.text() == nullptr ? "" : *name.text());
  try {
    for (const Json& described : items_of(description, "inputs")) inputs_.push_back(read_input(described));
  } catch (const Error& error) {
    fail(Status::kCorrupt, "the package '", source, "' describes its inputs wrongly: ", error.message());
  }
}

InputChecks::Input InputChecks::read_input(const Json& described) {
  Input input;
  input.name = json_text(described, "name", "");
  input.is_tensor = json_member(described, "dtype") != nullptr;
  if (!input.is_tensor) {
    if (const Json* const value = json_member(described, "value")) input.constant = *value;
    return input;
  }
  input.dtype = tensor::dtype_from_name(json_text(described, "dtype", ""));
  for (const Json& size : items_of(described, "shape")) {
    Dimension dimension;
    if (size.integer()) {
      dimension.least = *size.integer();
    } else {
      dimension.symbol = json_text(size, "symbol", "");
      dimension.least = json_integer(size, "min", 0);
      if (const Json* const most = json_member(size, "max")) dimension.most = most->integer();
    }
    input.dimensions.push_back(std::move(dimension));
  }
  return input;
}

std::vector<at::Tensor> InputChecks::tensors_of(const std::vector<c10::IValue>& leaves) const {
  require(!are_known() || leaves.size() == inputs_.size(), Status::kInvalidArgument, "a package got ", leaves.size(),
          " values; expected ", inputs_.size());
  std::vector<at::Tensor> tensors;
  tensors.reserve(leaves.size());
  Sizes sizes;
  for (size_t i = 0; i < leaves.size(); i++) {
    if (are_known() && !inputs_[i].is_tensor) {
      check_constant(inputs_[i], leaves[i]);
      continue;
    }
    const std::string name = are_known() ? inputs_[i].name : text(i);
    require(leaves[i].isTensor() || (!are_known() && leaves[i].isNone()), Status::kTypeMismatch, "the input '", name,
            "' of a package is ", tree::kind_name(leaves[i]),
            "; expected a tensor: other values are fixed when a package is made");
    if (!leaves[i].isTensor()) continue;
    const at::Tensor& tensor = leaves[i].toTensor();
    require(!tensor.requires_grad() || !at::GradMode::is_enabled(), Status::kUnsupported, "the input '", name,
            "' of a package needs a gradient, and packages have no backward; train the model itself, which has fused "
            "kernels and captured steps");
    require(tensor.device().type() == device_.type(), Status::kTypeMismatch, "the input '", name,
            "' of a package is on ", tensor.device(), "; expected ", device_);
    if (are_known()) check_tensor(inputs_[i], tensor, sizes);
    // Code with checks of its own also says which strides it takes.
    tensors.push_back(are_known() ? tensor.detach().contiguous() : tensor.detach());
  }
  return tensors;
}

void InputChecks::check_tensor(const Input& input, const at::Tensor& tensor, Sizes& sizes) const {
  require(tensor.scalar_type() == input.dtype, Status::kTypeMismatch, "the input '", input.name,
          "' of a package is of dtype ", tensor::dtype_name(tensor.scalar_type()), "; expected ",
          tensor::dtype_name(input.dtype));
  require(static_cast<size_t>(tensor.dim()) == input.dimensions.size(), Status::kShapeMismatch, "the input '",
          input.name, "' of a package is of shape ", tensor.sizes(), "; expected ", input.dimensions.size(),
          " dimensions");
  for (size_t i = 0; i < input.dimensions.size(); i++) {
    const Dimension& dimension = input.dimensions[i];
    const int64_t size = tensor.sizes()[i];
    const auto refuse = [&](const std::string& expected) {
      fail(Status::kShapeMismatch, "the input '", input.name, "' of a package is of shape ", tensor.sizes(),
           "; expected ", expected, " in dimension ", i);
    };
    if (dimension.symbol.empty()) {
      if (size != dimension.least) refuse(text(dimension.least));
      continue;
    }
    if (size < dimension.least || (dimension.most && size > *dimension.most))
      refuse(dimension.most ? text("a size of ", dimension.least, " to ", *dimension.most)
                            : text("a size of at least ", dimension.least));
    const auto same =
        std::find_if(sizes.begin(), sizes.end(), [&](const auto& known) { return *known.first == dimension.symbol; });
    if (same == sizes.end())
      sizes.emplace_back(&dimension.symbol, size);
    else if (same->second != size)
      refuse(text(same->second, ", as other inputs have it,"));
  }
}

void InputChecks::check_constant(const Input& input, const c10::IValue& value) const {
  require(is_constant(input.constant, value), Status::kInvalidArgument, "the input '", input.name,
          "' of a package is another value than when it was made; expected ", print_json(input.constant));
}

}  // namespace accel::nn
