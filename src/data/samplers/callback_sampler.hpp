// SPDX-License-Identifier: Apache-2.0
// A sampler that is a callback of the application.
#pragma once

#include <functional>

#include "data/sampler.hpp"

namespace accel::data {

class CallbackSampler final : public Sampler {
 public:
  // Fills `indices`, as many as the sampler's length, with the order of an epoch.
  using Order = std::function<void(int64_t epoch, int64_t* indices)>;

  CallbackSampler(int64_t length, Order order);
  int64_t length() const override { return length_; }
  at::Tensor indices(int64_t epoch) const override;

 private:
  int64_t length_;
  Order order_;
};

}  // namespace accel::data
