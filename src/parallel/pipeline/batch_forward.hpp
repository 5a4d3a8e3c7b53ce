// SPDX-License-Identifier: Apache-2.0
// Batch forward: a batch passes through all stages of a pipeline, without gradients.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/gradient_exchange.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/split_boundary.hpp"
#include "parallel/pipeline/stage_runner.hpp"

namespace accel::parallel {

struct BatchForward {
  CommunicatorPtr ranks;
  c10::Device device;
  PipelineShape shape;  // of the stages; there are as many micro-batches as sizes
  // The rows of the batch, positive; asked on the rank with the first stage.
  std::function<int64_t(const c10::IValue& batch)> count_rows;
  // The rows of each micro-batch (cut_rows()), the same on all ranks.
  std::function<std::vector<int64_t>(int64_t rows)> sizes;
  // A stage of this rank. Not called behind a stage that returned None, which is passed on in place of its output.
  std::function<c10::IValue(int stage, const c10::IValue& input)> compute;
  // These are the stage runner's.
  BoundaryForm boundary_form = {};
  decltype(PipelineComputation::leave) leave = nullptr;
};

// Collective. `batch` is that of the rank with the first stage; the others' are ignored. Returns the outputs, joined,
// on the rank with the last stage, or None if one of them is; None on the other ranks. An error of one rank is thrown
// on all.
c10::IValue run_batch_forward(const BatchForward& forward, const c10::IValue& batch);

}  // namespace accel::parallel
