// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/stage_runner.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "nn/deferred_products.hpp"
#include "parallel/pipeline/step_outcome.hpp"
#include "tensor/autograd/backward.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

bool have(const PipelineActions& actions, PipelineAction::Kind kind) {
  return std::any_of(actions.begin(), actions.end(),
                     [kind](const PipelineAction& action) { return action.kind == kind; });
}

std::vector<at::Tensor> with_gradients(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : tensors_of(value))
    if (tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}

c10::IValue list_of(const std::vector<at::Tensor>& tensors) { return tree::new_list({tensors.begin(), tensors.end()}); }

}  // namespace

StageRunner::StageRunner(PipelineSchedule schedule, CommunicatorPtr ranks, c10::Device device,
                         BoundaryForm boundary_form)
    : schedule_(std::move(schedule)),
      ranks_(ranks),
      boundary_(schedule_.shape, std::move(ranks), device, std::move(boundary_form)) {
  require(ranks_->size() == schedule_.shape.ranks, Status::kInvalidArgument, "the pipeline schedule is for ",
          schedule_.shape.ranks, " ranks, and the group has ", ranks_->size());
  const PipelineActions& actions = schedule_.ranks[static_cast<size_t>(ranks_->rank())];
  has_backwards_ =
      have(actions, PipelineAction::Kind::kInputBackward) || have(actions, PipelineAction::Kind::kBackward);
}

template <typename Function>
void StageRunner::attempt(const PipelineAction& action, const Function& function) {
  if (failed_) return;
  try {
    function();
  } catch (const std::exception&) {
    error_ = std::current_exception();
    // Who does not train knows no schedule.
    failed_action_ =
        has_backwards_ ? text_of(action, schedule_.shape) : text("the forward of chunk ", action.micro_batch);
    failed_ = true;
  }
}

c10::IValue StageRunner::output_of(const PipelineAction& action, const c10::IValue& input,
                                   const PipelineComputation& computation) {
  const auto [kind, stage, micro_batch] = action;
  const auto products = has_backwards_ && computation.defers_products ? nn::DeferredProducts::create() : nullptr;
  c10::IValue output;
  {
    const nn::DeferredProducts::Scope scope(products);
    output = computation.forward(stage, micro_batch, input);
  }
  if (!has_backwards_) return output;
  Recorded recorded{with_gradients(input), with_gradients(output), /*weight=*/1, products};
  if (is_last(action)) {
    const at::Tensor loss = computation.loss(micro_batch, output);
    require(loss.numel() == 1, Status::kShapeMismatch, "the loss of a micro-batch has shape ", loss.sizes(),
            "; expected one element: take its mean or sum");
    require(loss.requires_grad(), Status::kInvalidState,
            "the loss of a micro-batch has no gradient history; expected the result of operators on the output");
    recorded.weight = computation.weight(micro_batch);
    loss_ += recorded.weight * loss.item<double>();
    recorded.outputs = {loss};
  }
  recorded_[{stage, micro_batch}] = std::move(recorded);
  return output;
}

void StageRunner::forward(const PipelineAction& action, const PipelineComputation& computation) {
  const auto [kind, stage, micro_batch] = action;
  std::optional<c10::IValue> input;
  if (is_first(action)) {
    attempt(action, [&, number = micro_batch] { input = computation.input(number); });
  } else {
    input = boundary_.receive({stage - 1, stage, micro_batch});
    failed_ = failed_ || !input;
  }
  std::optional<c10::IValue> output;
  attempt(action, [&] { output = output_of(action, *input, computation); });
  pass_on(action, output);
}

std::optional<StageEdge> StageRunner::edge_from(const PipelineAction& action) const {
  const auto [kind, stage, micro_batch] = action;
  if (kind == PipelineAction::Kind::kForward)
    return is_last(action) ? std::nullopt : std::optional<StageEdge>({stage, stage + 1, micro_batch});
  if (kind == PipelineAction::Kind::kWeightBackward || is_first(action)) return std::nullopt;
  return StageEdge{stage, stage - 1, micro_batch};
}

// A value that cannot be sent is this rank's error: nothing of it has been posted.
void StageRunner::pass_on(const PipelineAction& action, const std::optional<c10::IValue>& value) {
  const auto edge = edge_from(action);
  if (!edge || has_left_) return;  // it has been notified already
  bool is_sent = false;
  if (value)
    attempt(action, [&] {
      boundary_.send(*edge, *value);
      is_sent = true;
    });
  if (!is_sent) boundary_.send_failure(*edge);
}

// Stages that wait for values of this one are notified at once, ahead of a call in which it waits for their ranks.
void StageRunner::leave(const PipelineActions& actions, size_t next, const PipelineComputation& computation) {
  has_left_ = true;
  for (; next < actions.size(); next++)
    if (const auto edge = edge_from(actions[next])) boundary_.send_failure(*edge);
  if (computation.leave == nullptr) return;
  try {
    error_ = computation.leave(error_);
  } catch (const std::exception&) {
    failed_ = true;
    if (!error_) error_ = std::current_exception();
  }
}

std::vector<at::Tensor> StageRunner::input_gradients(const PipelineAction& action,
                                                     const std::vector<at::Tensor>& gradients,
                                                     const PipelineComputation& computation) {
  const auto found = recorded_.extract({action.stage, action.micro_batch});
  const Recorded& recorded = found.mapped();
  const nn::DeferredProducts::Scope scope(recorded.products);  // of what is computed again
  if (recorded.products) products_[{action.stage, action.micro_batch}] = recorded.products;
  if (computation.before_backward != nullptr) computation.before_backward(action);
  if (is_last(action)) {
    tensor::backward(recorded.outputs, {at::full_like(recorded.outputs[0], recorded.weight * computation.factor)});
  } else if (!recorded.outputs.empty()) {
    tensor::backward(recorded.outputs, gradients);
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : recorded.inputs)
    result.push_back(input.grad().defined() ? input.grad() : at::zeros_like(input));
  return result;
}

void StageRunner::backward(const PipelineAction& action, const PipelineComputation& computation) {
  const auto [kind, stage, micro_batch] = action;
  std::optional<c10::IValue> gradients = list_of({});
  if (!is_last(action)) gradients = boundary_.receive({stage + 1, stage, micro_batch});
  failed_ = failed_ || !gradients;
  std::optional<c10::IValue> result;
  attempt(action, [&] { result = list_of(input_gradients(action, tensors_of(*gradients), computation)); });
  pass_on(action, result);
  if (kind == PipelineAction::Kind::kBackward) weight_gradients(action);
}

void StageRunner::weight_gradients(const PipelineAction& action) {
  attempt(action, [&, done = products_.extract({action.stage, action.micro_batch})] {
    if (!done.empty()) done.mapped()->complete();
  });
}

double StageRunner::run(const PipelineComputation& computation) {
  failed_ = has_left_ = false;
  error_ = nullptr;
  loss_ = 0;
  execute(computation);
  return agree_on_step(*ranks_, loss_, error_, failed_action_);
}

void StageRunner::execute(const PipelineComputation& computation) {
  const auto forgotten = c10::make_scope_exit([this] {
    boundary_.forget_step();
    recorded_.clear();
    products_.clear();
  });
  const PipelineActions& actions = schedule_.ranks[static_cast<size_t>(ranks_->rank())];
  const at::AutoGradMode recorded(has_backwards_);
  boundary_.begin_step(actions);
  for (size_t next = 0; next < actions.size();) {
    const PipelineAction& action = actions[next++];
    boundary_.advance();
    if (action.kind == PipelineAction::Kind::kForward)
      forward(action, computation);
    else if (action.kind != PipelineAction::Kind::kWeightBackward)
      backward(action, computation);
    else
      weight_gradients(action);
    if (failed_ && !has_left_) leave(actions, next, computation);
  }
  if (!has_left_) leave(actions, actions.size(), computation);
  boundary_.end_step();
}

}  // namespace accel::parallel
