// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/layers/projection.hpp"

namespace accel::nn {

// y = x weight + bias, weight [in_features, out_features]: GPT-2's linear layer, which its checkpoints call Conv1D.
class Conv1d final : public Projection {
 public:
  Conv1d(at::Tensor weight, at::Tensor bias);

 protected:
  c10::IValue forward(const Inputs& inputs) override;
};

}  // namespace accel::nn
