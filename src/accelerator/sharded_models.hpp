// Sharded models: those of an accelerator, which complete their gradients before an update.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/parallel_model.hpp"

namespace accel::accelerator {

class ShardedModels {
 public:
  void add(const parallel::ParallelModelPtr& model) { models_.push_back(model); }

  // The models that still exist.
  std::vector<parallel::ParallelModelPtr> living() const {
    std::vector<parallel::ParallelModelPtr> models;
    for (const auto& entry : models_)
      if (auto model = entry.lock()) models.push_back(std::move(model));
    return models;
  }

 private:
  std::vector<std::weak_ptr<parallel::ParallelModel>> models_;
};

}  // namespace accel::accelerator
