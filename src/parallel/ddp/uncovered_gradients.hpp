// SPDX-License-Identifier: Apache-2.0
// Uncovered gradients: those of backwards that were not exchanged, until an exchange covers what has accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "nn/module.hpp"
#include "parallel/gradient_exchange.hpp"

namespace accel::parallel {

class UncoveredGradients {
 public:
  explicit UncoveredGradients(const nn::NamedTensors& parameters)
      : parameters_(parameters), are_uncovered_(parameters.size(), false) {}

  const nn::NamedTensors& parameters() const { return parameters_; }
  // The gradient of this parameter came, and is not exchanged. On any thread, as all of these.
  void note(size_t number);
  // All gradients were exchanged.
  void forget();
  // Adds those that parameters still have.
  void add_to(std::vector<UncoveredGradient>& found);
  // Whether this is one of the parameters, and its gradient was exchanged.
  bool covers(const at::Tensor& parameter);

 private:
  const nn::NamedTensors parameters_;
  std::mutex mutex_;
  std::vector<bool> are_uncovered_;
};

}  // namespace accel::parallel
