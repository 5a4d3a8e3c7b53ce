// SPDX-License-Identifier: Apache-2.0
// Micro-batch of some models, as a guard: counts it, and turns the exchange of gradients off until the accumulation
// window is complete.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "accelerator/prepared_model.hpp"

namespace accel::accelerator {

class MicroBatch {
 public:
  MicroBatch(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& modules);
  ~MicroBatch();
  MicroBatch(const MicroBatch&) = delete;
  MicroBatch& operator=(const MicroBatch&) = delete;

 private:
  std::shared_ptr<Accelerator> accelerator_;
  LossBackward::Current current_;
  std::optional<NoSyncGuard> no_sync_;
  const LossBackward::Current* former_;
};

}  // namespace accel::accelerator
