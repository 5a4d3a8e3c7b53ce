// SPDX-License-Identifier: Apache-2.0
// Stage pipeline: trains a model in micro-batches, whose stages the ranks along the axis pipeline of the mesh have. One
// rank has all of the model.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "tensor/placement.hpp"

namespace accel::parallel {

// The loss of a micro-batch, from what the last stage returns.
struct PipelineLoss {
  // One element; null: the model returns it.
  std::function<at::Tensor(const c10::IValue& output, const c10::IValue& targets)> of_output = nullptr;
  // The number of items of which the loss is the mean; null: rows.
  std::function<int64_t(const c10::IValue& targets)> count = nullptr;
  bool is_sum = false;  // over the items, instead of their mean
};

struct PipelineBatch {
  c10::IValue inputs;                  // of the model, a tuple; the first stage needs them, others may have none
  c10::IValue targets;                 // of the loss; the last stage needs them, if the loss does
  std::exception_ptr error = nullptr;  // why this rank cannot read its batch: thrown in its stages, so all ranks get it
};

// A tensor in the state of a model in stages, whichever rank has it.
struct StageTensor {
  std::string name;        // in the whole model
  std::string first_name;  // of a tied one, the first of its names; else the same
  at::ScalarType dtype;
  tensor::PlacementPtr placement;  // without boxes, if this rank has none of it
};

// A parameter that stages on several ranks have, such as the weight of an embedding and of the head.
struct TiedCopy {
  std::string name;  // in the whole model: its first
  at::Tensor parameter;
  std::shared_ptr<comm::Communicator> ranks;  // that have a copy, in the order of their first stages
};

class StagePipeline {
 public:
  using Forward = std::function<c10::IValue()>;

  StagePipeline() = default;
  virtual ~StagePipeline() = default;
  StagePipeline(const StagePipeline&) = delete;
  StagePipeline& operator=(const StagePipeline&) = delete;

  // Collective. Cuts the rows of the batch into micro-batches, and adds the gradients of their loss times `factor`,
  // which are exchanged unless the model's are not. `around` gets each forward of a stage, to call it, and whether that
  // returns the model's output. Returns the loss of the batch, the mean over the items, or the sum: the same on all
  // ranks of the pipeline, or, where it is not broadcast, on those with the last stage, and not a number on the others.
  virtual double train(const PipelineBatch& batch, const PipelineLoss& loss, double factor,
                       const std::function<c10::IValue(const Forward& forward, bool is_output)>& around) = 0;
  // Collective: the number that the rank with the last stage has.
  virtual int64_t of_last_stage(int64_t number) = 0;
  virtual bool has_last_stage() const = 0;
  // The tensors of the whole model, in its order; none of a model that is one stage.
  virtual const std::vector<StageTensor>& state() const = 0;
  virtual comm::Communicator& ranks() const = 0;
  // A table of the stages, for people.
  virtual std::string describe() const = 0;
  // The copies that this rank has, in the order of the whole model's parameters.
  virtual const std::vector<TiedCopy>& ties() const = 0;
};

using StagePipelinePtr = std::shared_ptr<StagePipeline>;

}  // namespace accel::parallel
