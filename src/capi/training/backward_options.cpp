// SPDX-License-Identifier: Apache-2.0
#include "capi/training/backward_options.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/tensor.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::vector<at::Tensor> read_inputs(const accel_value_t& value) {
  std::vector<at::Tensor> inputs;
  tree::for_each_leaf(to_ivalue(value, "options.inputs"), [&inputs](const c10::IValue& leaf) {
    require(leaf.isTensor(), Status::kTypeMismatch, "options.inputs has a ", tree::kind_name(leaf),
            "; expected tensors");
    inputs.push_back(leaf.toTensor());
  });
  return inputs;
}

}  // namespace

tensor::BackwardOptions read_backward_options(const accel_backward_options_t* given) {
  if (given == nullptr) return {};
  const accel_backward_options_t options = read_options(given, "options");
  tensor::BackwardOptions result{settings_of(options)};
  if (options.inputs != nullptr) result.inputs = read_inputs(*options.inputs);
  if (options.gradient != nullptr) result.gradient = check(options.gradient, "options.gradient").tensor;
  return result;
}

}  // namespace accel::capi
