// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/fixed_parameters.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/module_walks.hpp"

namespace accel::parallel {

void FixedParameters::check(const nn::Module& model) const {
  const std::vector<at::Tensor> now = model.parameters();
  const auto is_same = [](const at::Tensor& tensor, const nn::NamedTensor& known) {
    return tensor.is_same(known.second);
  };
  if (std::equal(now.begin(), now.end(), parameters_.begin(), parameters_.end(), is_same)) return;
  const auto missing = [](const nn::NamedTensors& tensors, const nn::NamedTensor& wanted) {
    return std::none_of(tensors.begin(), tensors.end(),
                        [&](const nn::NamedTensor& other) { return other.second.is_same(wanted.second); });
  };
  constexpr const char* kExpected =
      " after the model was prepared; expected the parameters that it had then: change the model before it is prepared";
  const nn::NamedTensors named = nn::named_parameters(model);
  for (const nn::NamedTensor& parameter : named)
    require(!missing(parameters_, parameter), Status::kInvalidState, "parameter '", parameter.first,
            "' was added or replaced", kExpected);
  for (const nn::NamedTensor& parameter : parameters_)
    require(!missing(named, parameter), Status::kInvalidState, "parameter '", parameter.first, "' was removed",
            kExpected);
}

}  // namespace accel::parallel
