// SPDX-License-Identifier: Apache-2.0
// Whole values of sharded parameters, for the application to read or change outside of forwards and backwards.
// @deepspeed zero.GatheredParameters
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "accelerator/accelerator.hpp"

namespace accel::accelerator {

class GatheredParameters {
 public:
  // Collective. All ranks take the values that rank `modifier` has at the end; nothing: changes are dropped, except
  // those of parameters that are not sharded.
  GatheredParameters(std::shared_ptr<Accelerator> accelerator, std::vector<at::Tensor> parameters,
                     std::optional<int> modifier);
  // Without finish(): drops changes.
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  // Collective.
  void finish();

 private:
  std::vector<parallel::ParallelModelPtr> models() const;

  std::shared_ptr<Accelerator> accelerator_;
  std::vector<at::Tensor> parameters_;
  std::optional<int> modifier_;
  bool gathered_ = false;
};

}  // namespace accel::accelerator
