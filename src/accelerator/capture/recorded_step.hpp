// SPDX-License-Identifier: Apache-2.0
// Recorded step: one training step as a graph of the device, with the memory of its inputs and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerator/capture/host_values.hpp"
#include "accelerator/prepared_objects.hpp"
#include "state/state.hpp"
#include "tensor/device/device_graph.hpp"

namespace accel::optim {
class UpdateRecording;
}
namespace accel::precision {
class ScaleRecording;
}

namespace accel::accelerator {

// Forward, backward and update. Takes and returns trees of tensors.
using StepFunction = std::function<c10::IValue(const c10::IValue& inputs)>;

class RecordedStep {
 public:
  // Calls the function once, on the stream, which records it: nothing is computed.
  RecordedStep(const state::State& state, const PreparedObjects& prepared, const StepFunction& step,
               const c10::IValue& inputs, const c10::Stream& stream);
  ~RecordedStep();
  RecordedStep(const RecordedStep&) = delete;
  RecordedStep& operator=(const RecordedStep&) = delete;

  // Whether the inputs have the structure, shapes, dtypes and numbers of those it was recorded with.
  bool takes(const c10::IValue& inputs) const;
  // Whether it still is the program's step: nothing that the host decides has changed, and parameters and gradients are
  // where they were.
  bool is_current() const;
  // Lets a recording that follows this one read learning rates on the device, if those that this has are others now.
  void drop_former_rates() const;
  const c10::IValue& inputs() const { return inputs_; }

  // One step with these inputs, which are copied. Queued on the current stream.
  c10::IValue replay(const c10::IValue& inputs);

 private:
  // A parameter with what a replay expects of it.
  struct Parameter {
    at::Tensor tensor;
    const void* data;
    at::Tensor gradient;     // after the step
    bool is_accumulated_to;  // the gradient was there before the step, which changes it
    bool is_left_alone;      // the step has no part in the gradient, which may be another step's
    bool is_trained;
  };

  void begin_scaling(const state::State& state);
  void end_scaling();
  void forget_values();
  void finish_parameters();
  void finish_scaling();

  const PreparedObjects& prepared_;
  c10::IValue inputs_;   // what the graph reads
  c10::IValue results_;  // what the graph writes
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> held_;  // gradients from before the step, which it may read
  PreparedOptimizers updated_;    // that the step has a part in
  std::optional<HostValues> host_values_;
  std::unique_ptr<optim::UpdateRecording> updates_;
  std::unique_ptr<precision::ScaleRecording> scaling_;       // null if losses are not scaled
  std::vector<std::shared_ptr<PreparedOptimizer>> flagged_;  // of each flag; null if it is not the latest one's
  tensor::DeviceGraph graph_;
};

}  // namespace accel::accelerator
