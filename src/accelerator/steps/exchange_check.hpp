// SPDX-License-Identifier: Apache-2.0
// Exchange check: says, when an optimizer steps, which gradients the ranks have not exchanged, because their weights
// drift apart without any other sign.
#pragma once

#include <memory>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/gradient_exchange.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::accelerator {

class ExchangeCheck {
 public:
  // `model` is checked as long as it exists.
  void add(const parallel::ParallelModelPtr& model);
  // Logs a warning, once for each model: a program may exchange gradients itself. It names parameters of the optimizer,
  // and says what to do.
  void run(const optim::Optimizer& optimizer);

 private:
  struct Entry {
    std::weak_ptr<parallel::ParallelModel> model;
    bool has_warned = false;
  };

  // The uncovered gradients of the optimizer in a model.
  std::vector<parallel::UncoveredGradient> find(parallel::GradientExchange& exchange,
                                                const optim::Optimizer& optimizer) const;
  // Whether a model covers the gradient: models may share parameters.
  bool is_covered(const at::Tensor& parameter) const;

  std::vector<Entry> entries_;
};

}  // namespace accel::accelerator
