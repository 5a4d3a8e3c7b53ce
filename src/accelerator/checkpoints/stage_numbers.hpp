// SPDX-License-Identifier: Apache-2.0
// Stage numbers: the numbers of an optimizer's parameters in the whole model, where each rank of a pipeline has some.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.hpp"
#include "optim/optimizer.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/stage_pipeline.hpp"

namespace accel::accelerator {

bool is_in_stages(parallel::ParallelModel& model);

class StageNumbers {
 public:
  // Collective among the ranks of the pipeline. Null: no model is in stages.
  static std::shared_ptr<const StageNumbers> agree(const optim::Optimizer& optimizer,
                                                   const std::vector<parallel::ParallelModelPtr>& models);

  // Collective: a state with the numbers of the whole model, from one with this rank's, whose parts are chunks. What
  // other ranks have is there as chunks without elements; other values are copied.
  c10::IValue to_whole(const c10::IValue& own) const;
  // A state with this rank's numbers, from one with those of the whole model.
  c10::IValue to_own(const c10::IValue& whole) const;

 private:
  struct Parameter {
    std::string key;  // its name in the whole model, with the number of the model
    const parallel::StageTensor* tensor = nullptr;
    std::optional<size_t> own;  // its number in the optimizer of this rank
  };

  StageNumbers(const optim::Optimizer& optimizer, const std::vector<parallel::ParallelModelPtr>& models);

  comm::Communicator* ranks_ = nullptr;
  std::vector<std::vector<Parameter>> groups_;  // of the whole model
  std::vector<std::vector<size_t>> own_groups_;
};

}  // namespace accel::accelerator
