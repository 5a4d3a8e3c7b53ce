// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/module.hpp"

namespace accel::nn {

struct Conv2dShape {
  int64_t in_channels;
  int64_t out_channels;
  int64_t kernel;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  // The kernel and stride of another width; 0: as the height.
  int64_t kernel_width = 0;
  int64_t stride_width = 0;
};

// weight [out_channels, in_channels / groups, kernel, kernel_width].
class Conv2d final : public Module {
 public:
  Conv2d(const Conv2dShape& shape, bool bias);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  Conv2dShape shape_;
  bool has_bias_;
};

// torch.nn.Conv1d, over [batch, in_channels, length]; weight [out_channels, in_channels / groups, kernel].
class SequenceConvolution final : public Module {
 public:
  SequenceConvolution(const Conv2dShape& shape, bool bias);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  Conv2dShape shape_;
  bool has_bias_;
};

}  // namespace accel::nn
