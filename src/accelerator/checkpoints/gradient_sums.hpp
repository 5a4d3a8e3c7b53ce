// SPDX-License-Identifier: Apache-2.0
// The gradients of open accumulation windows in the state of a rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "accelerator/checkpoints/rank_state.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/placement.hpp"

namespace accel::accelerator {

// A gradient is what this rank has summed up, or of a parameter of which it stores a part, this part of the mean over
// the ranks. With another number of ranks each loads the mean over the saving ranks, so that the mean over the ranks is
// the same.
class GradientSums final : public RankState {
 public:
  GradientSums(std::vector<parallel::ParallelModelPtr> models, bool open) : models_(std::move(models)), open_(open) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  void check_states_of_ranks(const std::vector<c10::IValue>& states) const override;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;

 private:
  struct Parameter {
    at::Tensor tensor;
    tensor::PlacementPtr placement;  // null: this rank stores all of it
    c10::IntArrayRef whole_shape() const;
  };
  std::vector<Parameter> parameters() const;

  std::vector<parallel::ParallelModelPtr> models_;
  bool open_;
};

}  // namespace accel::accelerator
