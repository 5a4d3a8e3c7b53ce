// SPDX-License-Identifier: Apache-2.0
#include "accelerator/parameters/prepared_parameters.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace accel::accelerator {

bool PreparedParameters::exchange_all(const std::vector<at::Tensor>& gradients) {
  gradient_state_->begin_micro_batch({window_});
  const auto exchange = this->exchange(*window_);
  // In the order of the buckets, so that one is exchanged while the next is filled.
  for (size_t i = gradients.size(); i-- > 0;) {
    at::Tensor gradient = gradients[i];
    if (!gradient.defined()) {
      const TrainedParameter& parameter = trained_[i];
      gradient = at::zeros({}, parameter.tensor.options().requires_grad(false)).expand(parameter.shape);
    }
    gradients_->ready(i, gradient, exchange);
  }
  gradients_->synchronize(exchange);
  return gradient_state_->sync_gradients();
}

}  // namespace accel::accelerator
