// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/layers/projection.hpp"

namespace accel::nn {

// y = x weight^T + bias, weight [out_features, in_features].
class Linear final : public Projection {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias);
  // With given tensors; `bias` may be undefined.
  Linear(at::Tensor weight, at::Tensor bias);

 protected:
  c10::IValue forward(const Inputs& inputs) override;
};

}  // namespace accel::nn
