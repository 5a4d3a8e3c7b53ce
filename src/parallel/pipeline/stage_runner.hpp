// SPDX-License-Identifier: Apache-2.0
// Stage runner: the step of one rank of a pipeline. It executes the actions of a schedule, and knows no schedule.
//
// Note: an error in a stage. The rank that has it sends on that it failed, in the place of each value that it owes, and
// so does who receives it. So every rank comes to the end of the step, where all throw the error of the first rank
// that has one, and the next step can run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/gradient_exchange.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/stage_boundary.hpp"

namespace accel::nn {
class DeferredProducts;
}

namespace accel::parallel {

// Computes for the actions of a step.
struct PipelineComputation {
  // The input of the first stage; asked on its rank.
  std::function<c10::IValue(int micro_batch)> input;
  // A stage of this rank. Called with gradients recorded, unless the schedule has no backwards.
  std::function<c10::IValue(int stage, int micro_batch, const c10::IValue& input)> forward;
  // The rest is for schedules with backwards. The loss of an output, one element; asked on the rank of the last stage.
  std::function<at::Tensor(int micro_batch, const c10::IValue& output)> loss = nullptr;
  // The share of a micro-batch in the loss of the step, and in its gradients; asked there, too.
  std::function<double(int micro_batch)> weight = nullptr;
  double factor = 1;  // of gradients
  // Gradients of weights may be computed behind those that the former stage waits for; else with them.
  bool defers_products = true;
  // Ahead of the computing of each backward, or of its first half; may be null.
  std::function<void(const PipelineAction& action)> before_backward = nullptr;
  // When this rank computes no more, behind the last action or the one that failed, with the error of this rank or
  // null. Returns the error that this rank tells the others. May be null.
  std::function<std::exception_ptr(const std::exception_ptr& error)> leave = nullptr;
};

class StageRunner {
 public:
  StageRunner(PipelineSchedule schedule, CommunicatorPtr ranks, c10::Device device, BoundaryForm boundary_form = {});

  // Collective. Adds to the gradients of this rank's parameters, and returns the sum of the weighted losses, the same
  // on all ranks; 0 for a schedule without backwards.
  double run(const PipelineComputation& computation);

  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  // The tensors of a forward, until its backward.
  struct Recorded {
    std::vector<at::Tensor> inputs;                  // those whose gradients the former stage wants
    std::vector<at::Tensor> outputs;                 // those that have gradients; of the last stage, the loss
    double weight = 1;                               // of the loss
    std::shared_ptr<nn::DeferredProducts> products;  // null: nothing is deferred
  };

  bool is_first(const PipelineAction& action) const { return action.stage == 0; }
  bool is_last(const PipelineAction& action) const { return action.stage + 1 == schedule_.shape.stages(); }
  // The actions of a step. Nothing of it is stored, also if the group fails.
  void execute(const PipelineComputation& computation);
  // Receives what the action needs, computes, and sends.
  void forward(const PipelineAction& action, const PipelineComputation& computation);
  void backward(const PipelineAction& action, const PipelineComputation& computation);
  c10::IValue output_of(const PipelineAction& action, const c10::IValue& input, const PipelineComputation& computation);
  std::vector<at::Tensor> input_gradients(const PipelineAction& action, const std::vector<at::Tensor>& gradients,
                                          const PipelineComputation& computation);
  void weight_gradients(const PipelineAction& action);
  // The value that the action makes for another stage.
  std::optional<StageEdge> edge_from(const PipelineAction& action) const;
  // Tells the other stages and ranks that this rank computes no more.
  void leave(const PipelineActions& actions, size_t next, const PipelineComputation& computation);
  // Sends the value, or that there is none.
  void pass_on(const PipelineAction& action, const std::optional<c10::IValue>& value);
  // Calls the function unless a rank has failed; the error of the function is that of this rank.
  template <typename Function>
  void attempt(const PipelineAction& action, const Function& function);

  const PipelineSchedule schedule_;
  const CommunicatorPtr ranks_;
  StageBoundary boundary_;
  bool has_backwards_ = false;                        // among the actions of this rank
  std::map<std::pair<int, int>, Recorded> recorded_;  // by stage and micro-batch
  std::map<std::pair<int, int>, std::shared_ptr<nn::DeferredProducts>>
      products_;              // of backwards whose first half is over
  bool failed_ = false;       // this rank, or one that notified it
  bool has_left_ = false;     // it computes no more in this step
  std::exception_ptr error_;  // of this rank
  std::string failed_action_;
  double loss_ = 0;
};

}  // namespace accel::parallel
