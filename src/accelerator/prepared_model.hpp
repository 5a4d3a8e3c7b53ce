// SPDX-License-Identifier: Apache-2.0
// Prepared model: a model with its precision and its parallelism.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerator/sequence_splitting.hpp"
#include "kernels/compute_policy.hpp"
#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/stage_pipeline.hpp"
#include "precision/autocast.hpp"
#include "state/gradient_state.hpp"
#include "trace/step_times.hpp"

namespace accel::accelerator {

struct ForwardPrecision;

class PreparedModel final : public nn::Module {
 public:
  PreparedModel(parallel::ParallelModelPtr parallel, ForwardPrecision precision, kernels::ComputePolicy compute_policy,
                std::shared_ptr<StepTimes> step_times);

  const nn::ModulePtr& model() const { return parallel_->module(); }
  std::vector<std::string> input_names() const override { return parallel_->input_names(); }
  const parallel::ParallelModelPtr& parallel() const { return parallel_; }
  const ForwardPrecision& precision() const { return *precision_; }
  kernels::ComputePolicy compute_policy() const { return compute_policy_; }
  const std::shared_ptr<state::AccumulationWindow>& accumulation() const { return accumulation_; }
  const std::shared_ptr<StepTimes>& step_times() const { return step_times_; }
  // The steps of accel_pipeline_step(). INVALID_STATE for a model that the program has split along the axis pipeline.
  parallel::StagePipeline& pipeline() const;
  void set_single_stage(parallel::StagePipelinePtr stage) { single_stage_ = std::move(stage); }
  // Collective: a step of the pipeline in this model's precision.
  double train_in_stages(const parallel::PipelineBatch& batch, const parallel::PipelineLoss& loss, double factor);
  // Each call is in a scope of its own.
  void set_sequences(std::shared_ptr<SequenceSplitting> sequences) { sequences_ = std::move(sequences); }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  using Forward = parallel::StagePipeline::Forward;

  // Runs all of the model, or a stage of it.
  c10::IValue compute(const Forward& forward, bool is_output);
  c10::IValue compute_in_half(const Forward& forward);
  bool computes_in_fp8() const;

  parallel::ParallelModelPtr parallel_;
  std::shared_ptr<const ForwardPrecision> precision_;
  std::optional<precision::AutocastWeightCache> casts_;  // of the parameters, if the model keeps them
  bool window_is_open_ = false;                          // the weights do not change before its end
  bool in_step_ = false;                                 // of a pipeline
  parallel::StagePipelinePtr single_stage_;              // null: the model is in stages
  kernels::ComputePolicy compute_policy_;
  std::shared_ptr<state::AccumulationWindow> accumulation_;
  std::shared_ptr<StepTimes> step_times_;
  std::shared_ptr<SequenceSplitting> sequences_;  // null: sequences are whole, or a scope splits them
};

// The model inside a prepared one, at any depth; the module itself if it is not prepared.
nn::ModulePtr unwrap_model(const nn::ModulePtr& module);
// Unwraps a model, but keeps its precision.
nn::ModulePtr unwrap_keeping_precision(const nn::ModulePtr& module);
// Replaces prepared models below a module, at any depth, by what `unwrap` makes of them; nothing on an error.
void unwrap_parts(nn::Module& module, nn::ModulePtr (*unwrap)(const nn::ModulePtr&));

// The parallelism of a prepared model; other modules have none.
parallel::ParallelModelPtr parallel_model_of(const nn::ModulePtr& module);
// Returns the parallelism, and throws for a module that is not prepared.
parallel::ParallelModelPtr require_prepared(const nn::ModulePtr& module);

// A map, as accel_fp8_describe() gives it.
c10::IValue describe_fp8(const nn::ModulePtr& module);

// Guard: turns off the exchange of the models' gradients.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(const std::vector<nn::ModulePtr>& modules);
  ~NoSyncGuard();
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::vector<std::pair<parallel::ParallelModelPtr, bool>> former_;
};

// Guard: a backward in its scope exchanges the model's gradients, although its forward ran with the exchange off.
class TriggerSyncGuard {
 public:
  explicit TriggerSyncGuard(const nn::ModulePtr& module);
  ~TriggerSyncGuard();
  TriggerSyncGuard(const TriggerSyncGuard&) = delete;
  TriggerSyncGuard& operator=(const TriggerSyncGuard&) = delete;

 private:
  parallel::ParallelModelPtr model_;
  bool former_;
};

}  // namespace accel::accelerator
