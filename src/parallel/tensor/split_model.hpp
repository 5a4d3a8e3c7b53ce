// SPDX-License-Identifier: Apache-2.0
// Splits a model's layers over ranks, in place, by a plan: tensor parallelism (Shoeybi et al., "Megatron-LM", 2019).
#pragma once

#include "nn/module.hpp"
#include "parallel/regions/split_region.hpp"
#include "parallel/tensor/plan.hpp"

namespace accel::parallel {

// The axis of the mesh along which ranks have parts of layers.
constexpr const char* kTensorAxis = "tensor";

struct SplitOptions : SplitRegionOptions {
  bool loss_parallel = false;  // class scores stay split for their loss
  bool is_stage = false;       // of a model, in other stages of which sequences begin to be split, or the head is
};

// Collective among the ranks of `group`, which have the same plan and options (check_same_plan()) and get the weights
// of its first rank: one whole parameter after the other, of which each keeps its part. A model without memory stays
// so. Nothing is changed if the plan does not fit the model.
void split_model(nn::Module& model, const std::vector<SplitRule>& plan, const RankGroup& group,
                 const SplitOptions& options);

}  // namespace accel::parallel
