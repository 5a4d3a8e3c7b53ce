// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/optimizer_update.hpp"

#include <utility>

#include "accelerator/steps/fp8_scales.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "parallel/uneven_inputs.hpp"
#include "precision/grad_scaler.hpp"
#include "precision/overflow_flag.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {

OptimizerUpdate::OptimizerUpdate(std::shared_ptr<optim::Optimizer> optimizer,
                                 const std::shared_ptr<precision::GradScaler>& scaler,
                                 std::shared_ptr<StepTimes> step_times,
                                 std::shared_ptr<const parallel::PlacedParameters> placed,
                                 std::shared_ptr<const StepClipping> clipping, std::shared_ptr<ExchangeCheck> exchanged,
                                 size_t index, std::shared_ptr<const ExpertBalance> balance,
                                 std::shared_ptr<Fp8Scales> fp8, c10::Device device)
    : optimizer_(std::move(optimizer)),
      step_times_(std::move(step_times)),
      placed_(std::move(placed)),
      clipping_(std::move(clipping)),
      exchanged_(std::move(exchanged)),
      index_(index),
      balance_(std::move(balance)),
      fp8_(std::move(fp8)),
      device_(device) {
  if (scaler == nullptr) return;
  scaled_ = precision::ScaledGradients::create(scaler, [inner = optimizer_] { return inner->parameters(); });
}

bool OptimizerUpdate::updates_parts() const {
  return !placed_->empty() && placed_->have_parts(optimizer_->parameters());
}

void OptimizerUpdate::check_exchanged() {
  if (exchanged_ != nullptr) exchanged_->run(*optimizer_);
}

// The gradients are complete afterwards, and states of new parameters have the memory that their model wants.
void OptimizerUpdate::finish_models() const {
  for (const auto& model : placed_->models()) {
    model->finish_step();
    const auto* const parts = model->parts();
    if (optim::StateMemory memory = parts != nullptr ? parts->state_memory() : nullptr)
      for (size_t i = 0; i < optimizer_->groups().size(); i++) optimizer_->group(i).state_memory = memory;
  }
  require(optimizer_->is_elementwise() || !updates_parts(), Status::kUnsupported,
          "the optimizer computes an update from a whole parameter, of which a rank of a sharded model has a "
          "part; expected one that updates each element by itself, such as AdamW or SGD, or a model without "
          "sharding");
}

// Each rank looks at the gradients that it has. All ranks that store parts of any model skip the step, or none:
// gradients that only one of them has, such as those of ignored modules, change the loss scale too, which is that of
// all models.
std::shared_ptr<precision::OverflowFlag> OptimizerUpdate::find_overflow() const {
  const std::string axes = tensor::join_axes(placed_->axes(), placed_->axes_of_models());
  return scaled_->flag(placed_->any_rank(axes, scaled_->found(), device_));
}

// On a device the step is queued: work of the device reads the flag, and the host reads it before the next step.
void OptimizerUpdate::step_scaled() {
  const auto overflow = find_overflow();
  const bool is_of_device = !overflow->is_on_host() && overflow->tensor().device() == scaled_->found().device();
  const bool is_balanced = balance_ != nullptr && !balance_->empty();
  if (is_of_device && !is_balanced && optimizer_->step_unless(overflow)) {
    outcome_->set(overflow);
    return scaled_->finish(overflow);
  }
  require(!overflow->is_recorded(), Status::kUnsupported,
          "a step with loss scaling cannot be captured where the host has to know of overflows before the update; "
          "expected an optimizer of the library that counts its steps there, such as adamw, or none, such as sgd, with "
          "its parameters on one device and no balance of experts, or mixed_precision bf16 or no");
  const bool is_overflow = overflow->value();
  if (!is_overflow) outcome_->set(!optimizer_->step());
  scaled_->finish(is_overflow);
}

void OptimizerUpdate::share_settings(comm::Communicator& ranks, int source) {
  const auto state = optimizer_->state_dict().toGenericDict();
  const c10::IValue own = state.at("param_groups");
  const c10::IValue received = comm::broadcast_object_list(ranks, own, source);
  if (received == own) return;
  auto changed = tree::new_map();
  changed.insert("state", state.at("state"));
  changed.insert("param_groups", received);
  optimizer_->load_state_dict(changed);
}

// Ranks whose inputs have ended make the step too, because they have a part of the parameters.
void OptimizerUpdate::announce() {
  for (const auto& model : placed_->models()) {
    parallel::UnevenInputs* const inputs = model->uneven_inputs();
    if (inputs == nullptr) continue;
    if (const auto source = inputs->announce_step(index_)) share_settings(inputs->communicator(), *source);
    return;
  }
}

void OptimizerUpdate::follow(comm::Communicator& ranks, int source) {
  share_settings(ranks, source);
  run();
  optimizer_->zero_grad(/*set_to_none=*/true);
}

void OptimizerUpdate::unscale() {
  finish_models();
  if (scaled_ != nullptr) scaled_->unscale();
}

void OptimizerUpdate::clip() {
  if (clipping_ == nullptr || clipping_->empty()) return;
  unscale();
  clipping_->clip(*optimizer_, *placed_);
}

bool OptimizerUpdate::run() {
  outcome_->settle();
  outcome_->set(true);
  check_exchanged();
  finish_models();
  clip();
  if (scaled_ != nullptr)
    step_scaled();
  else
    outcome_->set(!optimizer_->step());
  balance_experts();
  update_scales();
  return !outcome_->is_known() || !outcome_->was_skipped();
}

void OptimizerUpdate::balance_experts() const {
  if (balance_ != nullptr && !balance_->empty() && !outcome_->was_skipped()) balance_->run(*optimizer_);
}

// Also behind a step that was skipped: the magnitudes are those of its forwards.
void OptimizerUpdate::update_scales() const {
  if (fp8_ != nullptr) fp8_->update(optimizer_);
}

bool OptimizerUpdate::step() {
  outcome_->begin();
  const StepTimes::Section timed(*step_times_, StepPart::kOptimizer);
  step_times_->note_update();
  announce();
  return run();
}

void OptimizerUpdate::require_closures() const {
  require(scaled_ == nullptr, Status::kUnsupported,
          "a closure's gradients carry the loss scale, which is taken out before the step; expected a step without a "
          "closure, or a precision without a loss scale");
  require(clipping_ == nullptr || clipping_->empty(), Status::kUnsupported,
          "DeepSpeed's gradient_clipping clips before the step, and a closure computes gradients within it; expected a "
          "step without a closure, or a gradient_clipping of 0");
}

bool OptimizerUpdate::step_by(const optim::Closure& closure) {
  for (const auto& model : placed_->models())
    require(!model->has_uneven_inputs(), Status::kUnsupported,
            "ranks without inputs make each step of a sharded model too, and have nothing for a closure to compute; "
            "expected a step without a closure, or even batches");
  outcome_->begin();
  const StepTimes::Section timed(*step_times_, StepPart::kOptimizer);
  step_times_->note_update();
  finish_models();
  outcome_->set(!optimizer_->step_by([&] {
    closure();
    check_exchanged();
  }));
  balance_experts();
  update_scales();
  return !outcome_->was_skipped();
}

}  // namespace accel::accelerator
