// SPDX-License-Identifier: Apache-2.0
#include "accelerator/capture/captured_step.hpp"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "tensor/device/graph_recorder.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

// "Float [8, 16], Long [8]"
std::string shapes_text(const c10::IValue& inputs) {
  std::ostringstream text;
  const char* separator = "";
  tree::for_each_tensor(inputs, [&](const at::Tensor& input) {
    text << separator << input.scalar_type() << ' ' << input.sizes();
    separator = ", ";
  });
  return text.str();
}

// One step at a time; a function that runs its own step is an error.
class Running {
 public:
  explicit Running(bool& is_running) : is_running_(is_running) {
    require(!is_running, Status::kInvalidState,
            "a captured step runs itself; expected a function that computes one step");
    is_running_ = true;
  }
  ~Running() { is_running_ = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  bool& is_running_;
};

}  // namespace

CapturedStep::CapturedStep(state::State& state, const PreparedObjects& prepared, StepFunction step,
                           const CaptureSettings& settings)
    : state_(state),
      prepared_(prepared),
      step_(std::move(step)),
      settings_(settings),
      recording_obstacle_(tensor::recording_obstacle(state.device().type())) {
  if (uses_graphs()) return;
  log(LogLevel::kInfo, "device ", state.device().str(), " has no graphs: ", recording_obstacle_,
      "; a captured step is an ordinary one there, with the same results");
}

c10::IValue CapturedStep::run_plainly(const c10::IValue& inputs) {
  const c10::IValue moved = tree::send_to_device(inputs, state_.device(), /*non_blocking=*/false, {});
  return tree::map_tensors(step_(moved), [](const at::Tensor& result) { return result.detach(); });
}

// Autograd remembers the stream on which it saw a parameter first, so that warm-ups have the stream of the capture.
c10::IValue CapturedStep::warm_up(const c10::IValue& inputs) {
  if (stream_)
    tensor::order_behind_current(*stream_);
  else
    stream_ = tensor::new_stream_behind_current(state_.device());
  c10::IValue results;
  {
    const c10::StreamGuard guard(*stream_);
    results = run_plainly(inputs);
  }
  tensor::continue_behind(*stream_);
  const bool is_skipped =
      std::any_of(prepared_.optimizers.begin(), prepared_.optimizers.end(), [](const auto& optimizer) {
        const UpdateOutcome& outcome = optimizer->update().outcome();
        return !outcome.is_known() && outcome.was_skipped();
      });
  if (!is_skipped) warmups_ += 1;  // else states of the optimizer may not be there
  return results;
}

c10::IValue CapturedStep::record(const c10::IValue& inputs) {
  tensor::order_behind_current(*stream_);
  counts_.captures += 1;
  recorded_.push_back(std::make_unique<RecordedStep>(state_, prepared_, step_, inputs, *stream_));
  return replay(*recorded_.back(), inputs);
}

c10::IValue CapturedStep::replay(RecordedStep& recorded, const c10::IValue& inputs) {
  c10::IValue results = recorded.replay(inputs);
  counts_.replays += 1;
  return results;
}

c10::IValue CapturedStep::run(const c10::IValue& inputs) {
  const Running running(is_running_);
  counts_.steps += 1;
  if (!uses_graphs()) return run_plainly(inputs);
  if (warmups_ < settings_.warmup_steps) return warm_up(inputs);
  const auto found =
      std::find_if(recorded_.begin(), recorded_.end(), [&](const auto& recorded) { return recorded->takes(inputs); });
  if (found != recorded_.end()) {
    if ((*found)->is_current()) return replay(**found, inputs);
    (*found)->drop_former_rates();
    recorded_.clear();  // for all inputs alike
    return record(inputs);
  }
  if (static_cast<int64_t>(recorded_.size()) < settings_.max_captures) return record(inputs);
  require(settings_.run_others, Status::kShapeMismatch, "the inputs are ", shapes_text(inputs),
          ", and the captured step has ", shapes_text(recorded_.back()->inputs()),
          "; expected the same structure, shapes, dtypes and numbers, or a larger max_captures than ",
          settings_.max_captures, ", or run_others");
  return warm_up(inputs);
}

}  // namespace accel::accelerator
