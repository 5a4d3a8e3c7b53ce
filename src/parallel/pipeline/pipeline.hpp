// SPDX-License-Identifier: Apache-2.0
// Pipeline: the steps of a model whose stages the ranks of a group have, by a schedule.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/parallel_model.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/split_boundary.hpp"
#include "parallel/pipeline/stage_runner.hpp"
#include "parallel/pipeline/tied_stages.hpp"
#include "parallel/stage_pipeline.hpp"

namespace accel::parallel {

// Says what this rank computes.
struct PipelineStages {
  // A stage of this rank, of the output of the stage before it; of the first one, a tuple of the model's inputs.
  std::function<c10::IValue(int stage, const c10::IValue& value)> compute;
  std::vector<TiedCopy> ties = {};
  std::vector<StageTensor> state = {};
  std::string description;
  // Gradients are exchanged behind the backwards instead of beside the last one.
  bool exchanges_at_end = false;
  BoundaryForm boundary_form = {};
  // The ranks that exchange gradients, which throw the error of one that fails; null: there are no others.
  CommunicatorPtr exchanging = nullptr;
  bool broadcasts_loss = true;  // to ranks without the last stage
};

class Pipeline final : public StagePipeline {
 public:
  // `model` says whether gradients are exchanged; `exchanging` does it, and may be the same. Both outlive this.
  Pipeline(const ParallelModel& model, ParallelModel& exchanging, const PipelineSchedule& schedule,
           CommunicatorPtr ranks, c10::Device device, PipelineStages stages);

  double train(const PipelineBatch& batch, const PipelineLoss& loss, double factor,
               const std::function<c10::IValue(const Forward& forward, bool is_output)>& around) override;
  int64_t of_last_stage(int64_t number) override;
  bool has_last_stage() const override { return last_rank() == ranks_->rank(); }
  const std::vector<StageTensor>& state() const override { return stages_.state; }
  comm::Communicator& ranks() const override { return *ranks_; }
  std::string describe() const override { return stages_.description; }
  const std::vector<TiedCopy>& ties() const override { return ties_.copies(); }

  // Collective: forwards alone. `inputs` are a tuple of the model's, or nothing on ranks without the first stage. The
  // output is that of all rows, on the rank with the last stage, or on all of them.
  c10::IValue evaluate(const c10::IValue& inputs, bool on_all_ranks);

 private:
  const PipelineShape& shape() const { return runner_.schedule().shape; }
  int last_rank() const { return shape().rank_of(shape().stages() - 1); }
  using Leave = decltype(PipelineComputation::leave);

  // Runs the actions of a step. With `agrees` all ranks that exchange gradients know at its end whether it has failed;
  // `beside` exchanges them during its last backward, or is null.
  void run(const std::function<void(const Leave& leave)>& actions, bool agrees, GradientExchange* beside);
  // Runs forwards alone, in each of which parameters may be gathered with other ranks.
  c10::IValue forward_all(const c10::IValue& inputs);
  // The backward of this rank behind which no other one comes.
  bool is_last_backward(const PipelineAction& action) const;

  const ParallelModel& model_;
  ParallelModel& exchanging_;
  const CommunicatorPtr ranks_;
  const PipelineStages stages_;
  TiedStages ties_;
  StageRunner runner_;
  const c10::Device device_;
  bool has_failed_ = false;  // the latest step, on all ranks that exchange gradients
};

}  // namespace accel::parallel
