// SPDX-License-Identifier: Apache-2.0
// Pipelined model: a model of which this rank has some stages. A kind of data parallelism exchanges their gradients
// with the ranks that have the same stages.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/parallel_model.hpp"
#include "parallel/pipeline/cut/model_chain.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/split_boundary.hpp"

namespace accel::parallel {

constexpr const char* kPipelineAxis = "pipeline";  // of the mesh

// A tensor of a model before it was cut.
struct WholeTensor {
  std::string name, first_name;
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

// A model that has been cut: it has the parts of this rank's stages alone.
struct StagePlan {
  nn::ModuleChain chain;
  ChainCut cut;
  PipelineSchedule schedule;
  CommunicatorPtr ranks;
  std::vector<TiedCopy> ties;
  std::vector<WholeTensor> state;  // of the whole model, in its order
  bool gathers_output = false, broadcasts_loss = true;
  BoundaryForm boundary_form = {};
};

// Says of the parameters of a cut model that ranks along the axis pipeline have others. Behind split_layers().
void place_stages(nn::Module& module, const StagePlan& plan);

class PipelinedModel final : public ParallelModel {
 public:
  // `inner` is the model around the stage module of this plan, whose gradients the ranks of `gradient` average.
  // Collective.
  PipelinedModel(nn::ModulePtr module, ParallelModelPtr inner, const StagePlan& plan, const CommunicatorPtr& gradient,
                 bool exchanges_at_end, c10::Device device);

  GradientExchange* exchange() override { return inner_->exchange(); }
  ParameterParts* parts() override { return inner_->parts(); }
  StagePipeline* pipeline() override { return &pipeline_; }
  std::vector<at::Tensor> gradients() const override { return inner_->gradients(); }
  void finish_step() override { inner_->finish_step(); }
  void note_failed_backward(const std::string& error) override { inner_->note_failed_backward(error); }
  bool can_shadow() const override { return false; }

 protected:
  // In evaluation: the output is on the rank with the last stage, or on all.
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  const ParallelModelPtr inner_;
  Pipeline pipeline_;
  const bool gathers_output_;
};

}  // namespace accel::parallel
