// SPDX-License-Identifier: Apache-2.0
// Normalization over the last dimension, or over the batch.
#pragma once

#include <optional>

#include "nn/module.hpp"

namespace accel::nn {

class LayerNorm final : public Module {
 public:
  static constexpr double kDefaultEpsilon = 1e-5;
  explicit LayerNorm(int64_t normalized_size, double epsilon = kDefaultEpsilon);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  int64_t normalized_size_;
  double epsilon_;
};

class RmsNorm final : public Module {
 public:
  // Default epsilon: that of the input's dtype.
  explicit RmsNorm(int64_t normalized_size, std::optional<double> epsilon = std::nullopt);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  int64_t normalized_size_;
  std::optional<double> epsilon_;
};

// Batch normalization of [batch, features, ...]: uses the batch's statistics in training, which also update the running
// ones; otherwise the running statistics.
class BatchNorm final : public Module {
 public:
  static constexpr double kDefaultEpsilon = 1e-5;
  static constexpr double kDefaultMomentum = 0.1;
  explicit BatchNorm(int64_t num_features, double epsilon = kDefaultEpsilon, double momentum = kDefaultMomentum);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  double epsilon_;
  double momentum_;
};

}  // namespace accel::nn
