// SPDX-License-Identifier: Apache-2.0
#include "nn/split/split_loss.hpp"

namespace accel::nn {

at::Tensor counted_targets(const at::Tensor& target, const std::optional<at::Tensor>& class_weight,
                           int64_t ignore_index) {
  const at::Tensor counted = target.ne(ignore_index);
  if (!class_weight || !class_weight->defined()) return counted.sum();
  return class_weight->detach().index_select(0, target.masked_select(counted)).sum();
}

}  // namespace accel::nn
