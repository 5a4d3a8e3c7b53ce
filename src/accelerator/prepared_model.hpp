// What prepare_model() gives: the model under its precision and its parallelism.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/step_times.hpp"
#include "kernels/compute_policy.hpp"
#include "nn/module.hpp"
#include "parallel/parallel_model.hpp"
#include "precision/autocast.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

// How a prepared model's forward computes.
struct ForwardPrecision {
  Precision precision = Precision::kNo;
  c10::DeviceType device = c10::DeviceType::CPU;
  AutocastSettings autocast;
  bool keep_output_dtype = false;  // else half-precision outputs become float32, as the loss is computed outside
};

class PreparedModel final : public nn::Module {
 public:
  PreparedModel(parallel::ParallelModelPtr parallel, const ForwardPrecision& precision,
                kernels::ComputePolicy compute_policy, std::shared_ptr<StepTimes> step_times);

  const nn::ModulePtr& model() const { return parallel_->module(); }
  std::vector<std::string> input_names() const override { return parallel_->input_names(); }
  const parallel::ParallelModelPtr& parallel() const { return parallel_; }
  const ForwardPrecision& precision() const { return precision_; }
  kernels::ComputePolicy compute_policy() const { return compute_policy_; }
  const std::shared_ptr<state::AccumulationGroup>& accumulation() const { return accumulation_; }
  const std::shared_ptr<StepTimes>& step_times() const { return step_times_; }

 protected:
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  c10::IValue forward_in_half(const nn::Inputs& inputs);

  parallel::ParallelModelPtr parallel_;
  ForwardPrecision precision_;
  std::optional<precision::AutocastWeightCache> casts_;  // of the parameters, in half precision
  bool group_is_open_ = false;                           // of micro-batches: the weights stay until its last one
  kernels::ComputePolicy compute_policy_;
  std::shared_ptr<state::AccumulationGroup> accumulation_;
  std::shared_ptr<StepTimes> step_times_;
};

// The model inside a prepared one, at any depth; the module itself when it is not prepared.
nn::ModulePtr unwrap_model(const nn::ModulePtr& module);
// The same, but still under its precision.
nn::ModulePtr unwrap_keeping_precision(const nn::ModulePtr& module);

// The parallelism of a prepared model; for any other module that of one process.
parallel::ParallelModelPtr parallel_model_of(const nn::ModulePtr& module);
// The same, but an error for a module that is not prepared.
parallel::ParallelModelPtr require_prepared(const nn::ModulePtr& module);

// Gradients of the models are not exchanged while it lives.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(const std::vector<nn::ModulePtr>& modules);
  ~NoSyncGuard();
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::vector<std::pair<parallel::ParallelModelPtr, bool>> former_;
};

// A backward while it lives exchanges the model's gradients, although the forward was made where they are not.
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
