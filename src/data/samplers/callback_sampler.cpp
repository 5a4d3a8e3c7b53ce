// SPDX-License-Identifier: Apache-2.0
#include "data/samplers/callback_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "base/error.hpp"

namespace accel::data {

CallbackSampler::CallbackSampler(int64_t length, Order order) : length_(length), order_(std::move(order)) {
  require(length >= 0, Status::kInvalidArgument, "sampler length is ", length, "; expected at least 0");
}

at::Tensor CallbackSampler::indices(int64_t epoch) const {
  at::Tensor order = at::zeros({length_}, at::kLong);
  order_(epoch, order.mutable_data_ptr<int64_t>());
  return order;
}

}  // namespace accel::data
