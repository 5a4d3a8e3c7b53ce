// SPDX-License-Identifier: Apache-2.0
// Loss backward: backward with the weights of gradient accumulation and the loss scale, and micro-batches, which
// determine the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "parallel/stage_pipeline.hpp"
#include "state/state.hpp"
#include "tensor/autograd/backward.hpp"

namespace accel::accelerator {

class PreparedModel;

class LossBackward {
 public:
  // The models of a micro-batch, and their accumulation windows.
  struct Current {
    std::vector<parallel::ParallelModelPtr> models;
    state::AccumulationWindows windows;
  };

  // Both are those of the accelerator that has this.
  LossBackward(state::State& state, PreparedObjects& prepared) : state_(state), prepared_(prepared) {}
  LossBackward(const LossBackward&) = delete;

  // Back-propagates loss / gradient_accumulation_steps.
  void run(const at::Tensor& loss, const tensor::BackwardOptions& options = {});
  // Back-propagates a sum over `count` items. The accumulation window ends with the gradients of the mean over all its
  // items.
  void run_sum(const at::Tensor& loss_sum, int64_t count, const tensor::BackwardOptions& options = {});
  // Collective: forwards and backwards of a model in stages, as one backward of the mean or of the sum. Returns the
  // loss.
  double run_in_stages(PreparedModel& model, const parallel::PipelineBatch& batch, const parallel::PipelineLoss& loss);
  // Backward that updates the prepared LOMO optimizers. @accelerate lomo_backward
  void run_lomo(const at::Tensor& loss, std::optional<double> lr);

  // The micro-batches of the models since a loader ended: of the one that has most. @accelerate step
  int64_t accumulation_step() const;
  void set_accumulation_step(int64_t step);
  bool in_micro_batch() const { return current_ != nullptr; }
  // Another micro-batch is current, or none; returns the former one.
  const Current* set_current(const Current* current) { return std::exchange(current_, current); }

 private:
  // The weights of a mean, and of a sum over `count` items of this micro-batch; sets them in the open windows.
  double weigh_mean();
  double weigh_sum(int64_t count);
  // The loss of whole sequences.
  double over_contexts(double loss, bool is_sum) const;
  void note_failure(const std::exception& error) const;
  void back_propagate(const at::Tensor& loss, double factor, const tensor::BackwardOptions& options);
  void finish_backward();
  // Compares the gradients of the models of which that was asked and which have got some. Collective along the axis.
  void verify_gradients();
  // Sets the weight of losses in the open accumulation windows; gradients that are already accumulated are rescaled.
  void set_loss_weight(double weight);
  // The models of the micro-batch; all outside of one.
  std::vector<parallel::ParallelModelPtr> current_models() const;
  std::vector<at::Tensor> gradients_of_current() const;

  state::State& state_;
  PreparedObjects& prepared_;
  const Current* current_ = nullptr;  // null outside of a micro-batch, which is one of all models
  at::Tensor seed_;                   // of the latest backward, which has this factor
  double seed_factor_ = 0;
};

}  // namespace accel::accelerator
