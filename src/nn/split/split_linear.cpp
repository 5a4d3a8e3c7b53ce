// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_linear.hpp"

#include <ATen/core/Tensor.h>

#include "base/error.hpp"
#include "nn/split/marks.hpp"

namespace accel::nn {
namespace {

using LinearMarks = Marks<WeakTensor, SplitLinear>;

LinearMarks& weights_of_linears() {
  static LinearMarks& marks = *std::make_unique<LinearMarks>().release();
  return marks;
}

}  // namespace

void mark_split_linear(const at::Tensor& weight, const std::shared_ptr<const SplitLinear>& linear) {
  weights_of_linears().set(WeakTensor(weight.getIntrusivePtr()), linear, /*owns=*/false);
}

at::Tensor split_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        bool is_transposed, bool splits_sequence, int64_t readers) {
  require(readers >= 1, Status::kInvalidArgument, "readers is ", readers, "; expected at least 1");
  const Product product{is_transposed};
  const at::Tensor added = bias.value_or(at::Tensor());
  const auto linear = weights_of_linears().find(weight.unsafeGetTensorImpl());
  if (!linear) return product(input, weight, added);
  require(*linear != nullptr, Status::kInvalidState,
          "the weight is a part of that of a split model which is gone; expected one of a model that exists");
  return (*linear)->multiply(input, weight, added, {product, splits_sequence, readers});
}

}  // namespace accel::nn
