// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/loss_backward.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <unordered_set>

#include "accelerator/checkpoints/rank_state.hpp"
#include "accelerator/forward_precision.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "config/generated/settings/state/state.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "optim/lomo.hpp"
#include "parallel/gradient_check.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/device/device_graph.hpp"

namespace accel::accelerator {
namespace {

void check_loss(const at::Tensor& loss, const tensor::BackwardOptions& options) {
  require(loss.requires_grad(), Status::kInvalidState,
          "the loss has no gradient history; expected the result of operators on parameters, outside of no_grad, or "
          "accel_pipeline_step() for a model in stages on several ranks");
  tensor::check_backward(loss, options);
}

// Whether a backward mixes the gradients of some of these with those of other ranks, which need the same weight then.
bool exchange(const std::vector<parallel::ParallelModelPtr>& models) {
  return std::any_of(models.begin(), models.end(), [](const parallel::ParallelModelPtr& model) {
    return model->exchange() != nullptr && model->gradient_sync();
  });
}

// A program may compute again in a backward by means of its own, such as torch.utils.checkpoint: in 8 bits, too.
void in_fp8_of(const std::vector<ModelEntry>& models, size_t first, const std::function<void()>& run) {
  if (first == models.size()) return run();
  const auto prepared = models[first].prepared.lock();
  const bool is_trained = prepared != nullptr && prepared->model()->is_training();
  const nn::Fp8Layers::Scope scope(is_trained ? prepared->precision().fp8 : nullptr);
  in_fp8_of(models, first + 1, run);
}

using Parameters = std::unordered_set<const c10::TensorImpl*>;

// Guard for LOMO, which exchanges each gradient itself before it is freed: turns off the exchange of the models of its
// parameters, and drops their gradients at the end.
class SuspendGradientReduction {
 public:
  SuspendGradientReduction(const std::vector<parallel::ParallelModelPtr>& models, const Parameters& lomo) {
    for (const parallel::ParallelModelPtr& model : models) {
      if (model->exchange() == nullptr) continue;
      std::vector<at::Tensor> own;
      size_t trainable = 0;
      for (const at::Tensor& parameter : model->parameters()) {
        trainable += parameter.requires_grad() ? 1 : 0;
        if (parameter.requires_grad() && lomo.count(parameter.unsafeGetTensorImpl()) > 0) own.push_back(parameter);
      }
      if (own.empty()) continue;
      require(own.size() == trainable, Status::kUnsupported, "LOMO has ", own.size(), " of the ", trainable,
              " trainable parameters of a model; with several processes expected all of them, or none");
      require(!model->has_uneven_inputs(), Status::kUnsupported,
              "LOMO exchanges gradients one by one, which a rank without inputs cannot go along with; expected "
              "accel_lomo_backward() outside of accel_join_uneven_inputs_begin()");
      parameters_.insert(parameters_.end(), own.begin(), own.end());
      found_.push_back(model);
    }
    auto restored = c10::make_scope_exit([this] { restore(); });  // a constructor that throws has no destructor
    for (const parallel::ParallelModelPtr& model : found_)
      former_.push_back(model->exchange()->set_gradient_group(nullptr));
    restored.release();
  }
  ~SuspendGradientReduction() {
    restore();
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }
  SuspendGradientReduction(const SuspendGradientReduction&) = delete;
  SuspendGradientReduction& operator=(const SuspendGradientReduction&) = delete;

 private:
  void restore() {
    for (size_t i = 0; i < former_.size(); i++) found_[i]->exchange()->set_gradient_group(former_[i]);
  }

  std::vector<parallel::ParallelModelPtr> found_;
  std::vector<parallel::CommunicatorPtr> former_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace

void LossBackward::back_propagate(const at::Tensor& loss, double factor, const tensor::BackwardOptions& options) try {
  const StepTimes::Section timed(*state_.communicator()->step_times(), StepPart::kBackward);
  at::Tensor scale;  // on the device, if only that knows it
  if (prepared_.grad_scaler != nullptr) {
    scale = prepared_.grad_scaler->begin_backward(loss.device());
    if (!scale.defined()) factor *= prepared_.grad_scaler->scale();
  }
  const kernels::ComputeScope scope(state_.compute_policy());
  prepared_.sequences->note_backward();
  // The factor is in the seed of backward, so the loss is not multiplied. It hardly ever changes.
  if (options.gradient.defined()) {
    if (!scale.defined()) {
      tensor::backward(loss, options, options.gradient * factor);
    } else {  // float16 does not hold the scale
      const c10::ScalarType dtype = options.gradient.scalar_type();
      const at::Tensor scaled = options.gradient.to(c10::promoteTypes(dtype, at::kFloat)) * (scale * factor);
      tensor::backward(loss, options, scaled.to(dtype));
    }
    return finish_backward();
  }
  if (scale.defined()) {
    seed_.reset();
    const at::Tensor seed = (scale * factor).to(loss.scalar_type()).expand(loss.sizes());
    in_fp8_of(prepared_.models, 0, [&] { tensor::backward(loss, options, seed); });
    return finish_backward();
  }
  const bool same = seed_.defined() && seed_factor_ == factor && seed_.sizes() == loss.sizes() &&
                    seed_.scalar_type() == loss.scalar_type() && seed_.device() == loss.device();
  if (!same) {
    seed_ = at::full(loss.sizes(), factor, loss.options().requires_grad(false));
    seed_factor_ = factor;
  }
  in_fp8_of(prepared_.models, 0, [&] { tensor::backward(loss, options, seed_); });
  finish_backward();
} catch (const std::exception& error) {
  note_failure(error);
  throw;
}

void LossBackward::note_failure(const std::exception& error) const {
  for (const ModelEntry& entry : prepared_.models) entry.parallel()->note_failed_backward(error.what());
}

void LossBackward::finish_backward() {
  if (tensor::DeviceGraph::is_capturing())
    for (const parallel::ParallelModelPtr& model : current_models())
      if (parallel::GradientExchange* const exchange = model->exchange()) exchange->record_exchange();
  verify_gradients();
}

void LossBackward::verify_gradients() {
  constexpr const char* kAxis = "tensor";
  for (ModelEntry& entry : prepared_.models)
    if (entry.verifies_gradients &&
        parallel::check_equal_gradients(*entry.model, kAxis, *state_.groups().mesh()->group(kAxis)))
      entry.verifies_gradients = false;
}

double LossBackward::weigh_mean() {
  const state::AccumulationSettings& settings = state_.gradient_state()->settings();
  double weight = 1.0 / static_cast<double>(settings.num_steps);
  if (current_ == nullptr) return weight;
  const state::AccumulationWindow& window = *current_->windows.front();
  require(window.items < 0, Status::kInvalidState,
          "accel_backward_sum() was called for this group of micro-batches; expected one kind of backward in a group");
  if (settings.true_divisor && window.complete) weight = 1.0 / static_cast<double>(window.length);
  set_loss_weight(weight);
  return weight;
}

void LossBackward::run(const at::Tensor& loss, const tensor::BackwardOptions& options) {
  check_loss(loss, options);
  back_propagate(loss, weigh_mean(), options);
}

double LossBackward::weigh_sum(int64_t count) {
  const state::GradientState& gradient_state = *state_.gradient_state();
  const state::AccumulationSettings& settings = gradient_state.settings();
  const bool syncs = gradient_state.sync_gradients();
  if (current_ == nullptr) state::advance(*gradient_state.own().front(), syncs);
  const state::AccumulationWindows& windows = current_ != nullptr ? current_->windows : gradient_state.own();
  const state::AccumulationWindow& window = *windows.front();
  require(window.weight == 0 || window.items >= 0, Status::kInvalidState,
          "accel_backward() was called for this group of micro-batches; expected one kind of backward in a group");
  const int64_t items = std::max<int64_t>(window.items, 0) + count;
  const bool exchanges = state_.use_distributed() && (syncs || settings.sync_each_batch || exchange(current_models()));
  double weight = window.weight;
  if (exchanges || syncs) {
    // Gradients are averaged over the gradient group, so the weight includes the number of its ranks.
    at::Tensor total = at::full({1}, items, at::TensorOptions().dtype(at::kLong));
    if (exchanges) {
      total = total.to(state_.groups().gradient_group()->device());
      state_.groups().gradient_group()->all_reduce(total, comm::ReduceOp::kSum);
    }
    weight = static_cast<double>(state_.groups().gradient_group()->size()) /
             static_cast<double>(std::max<int64_t>(total.item<int64_t>(), 1));
  } else if (weight == 0) {
    weight = 1.0 / static_cast<double>(settings.num_steps * std::max<int64_t>(count, 1));  // about what it will be
  }
  set_loss_weight(weight);
  for (const auto& counted : windows) counted->items = items;
  return weight;
}

void LossBackward::run_sum(const at::Tensor& loss_sum, int64_t count, const tensor::BackwardOptions& options) {
  check_loss(loss_sum, options);
  require(count >= 0, Status::kInvalidArgument, "count is ", count, "; expected 0 or more items");
  back_propagate(loss_sum, weigh_sum(count), options);
}

double LossBackward::run_in_stages(PreparedModel& model, const parallel::PipelineBatch& batch,
                                   const parallel::PipelineLoss& loss) {
  require(!model.parallel()->has_uneven_inputs(), Status::kUnsupported,
          "a rank without inputs cannot go along with steps of a pipeline; expected accel_pipeline_step() outside of "
          "accel_join_uneven_inputs_begin()");
  parallel::StagePipeline& pipeline = model.pipeline();
  parallel::PipelineBatch own = batch;
  double factor = 0;
  if (loss.is_sum) {
    const int64_t count = pipeline.of_last_stage(pipeline.has_last_stage() ? loss.count(batch.targets) : 0);
    if (count < 0 && !own.error)  // of a stage, so that ranks with other rows, which count theirs, receive it
      own.error = std::make_exception_ptr(
          Error(Status::kInvalidArgument,
                "the rank with the last stage has no int64 labels to count; expected targets of the batch"));
    factor = weigh_sum(std::max<int64_t>(count, 0));
  } else {
    factor = weigh_mean();
  }
  if (prepared_.grad_scaler != nullptr) factor *= prepared_.grad_scaler->scale_for_backward();
  try {
    const StepTimes::Section timed(*state_.communicator()->step_times(), StepPart::kBackward);
    const kernels::ComputeScope scope(state_.compute_policy());
    const double result = model.train_in_stages(own, loss, factor);
    prepared_.sequences->note_backward();
    verify_gradients();
    return over_contexts(result, loss.is_sum);
  } catch (const std::exception& error) {
    note_failure(error);
    throw;
  }
}

// Each rank along the axis has the loss of its positions.
double LossBackward::over_contexts(double loss, bool is_sum) const {
  constexpr const char* kAxis = "context";
  if (state_.groups().mesh()->size(kAxis) == 1) return loss;
  comm::Communicator& ranks = *state_.groups().mesh()->group(kAxis);
  const at::Tensor whole = at::full({1}, loss, at::TensorOptions().dtype(at::kDouble).device(ranks.device()));
  ranks.all_reduce(whole, is_sum ? comm::ReduceOp::kSum : comm::ReduceOp::kMean);
  return whole.item<double>();
}

void LossBackward::run_lomo(const at::Tensor& loss, std::optional<double> lr) {
  require(prepared_.grad_scaler == nullptr, Status::kUnsupported,
          "LOMO has no whole set of gradients to look for overflows in; expected bf16 or no mixed precision, not fp16");
  std::vector<std::shared_ptr<optim::Optimizer>> lomo;
  for (const auto& optimizer : prepared_.optimizers) {
    if (optim::is_lomo(*optimizer->inner())) lomo.push_back(optimizer->inner());
  }
  require(!lomo.empty(), Status::kInvalidState,
          "no LOMO optimizer is prepared; expected one of accel_optimizer_lomo()");
  if (!state_.use_distributed()) return optim::lomo_backward(lomo, loss, lr);
  for (const auto& optimizer : lomo) {
    const std::string axes = prepared_.placed->axes_of(optimizer->parameters());
    require(
        !tensor::has_any_axis(axes, "tensor"), Status::kUnsupported,
        "LOMO updates a model whose layers are split over the axis tensor of the mesh; expected AdamW or SGD, or ranks "
        "with whole layers");
    require(!tensor::has_any_axis(axes, parallel::kExpertAxes), Status::kUnsupported,
            "LOMO updates a model of whose experts each rank has some; expected AdamW or SGD, or "
            "expert_parallel_size 1");
  }
  Parameters parameters;
  for (const auto& optimizer : lomo)
    for (const at::Tensor& parameter : optimizer->parameters()) parameters.insert(parameter.unsafeGetTensorImpl());
  const SuspendGradientReduction suspended(prepared_.parallel_models(), parameters);
  optim::lomo_backward(lomo, loss, lr, [this](const at::Tensor& gradient) {
    state_.groups().gradient_group()->all_reduce(gradient, comm::ReduceOp::kMean);
  });
}

std::vector<parallel::ParallelModelPtr> LossBackward::current_models() const {
  return current_ != nullptr ? current_->models : prepared_.parallel_models();
}

std::vector<at::Tensor> LossBackward::gradients_of_current() const {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const c10::TensorImpl*> seen;  // models may share parameters
  for (const parallel::ParallelModelPtr& model : current_models())
    for (const at::Tensor& gradient : model->gradients())
      if (seen.insert(gradient.unsafeGetTensorImpl()).second) gradients.push_back(gradient);
  return gradients;
}

void LossBackward::set_loss_weight(double weight) {
  const state::AccumulationWindows& windows = current_ != nullptr ? current_->windows : state_.gradient_state()->own();
  const double former = windows.front()->weight;
  // Otherwise Accelerate's weights apply, and accumulated gradients are not rescaled.
  const bool exact = state_.gradient_state()->settings().true_divisor || windows.front()->items >= 0;
  if (exact && former != 0 && former != weight) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> gradients = gradients_of_current();
    if (!gradients.empty()) at::_foreach_mul_(gradients, weight / former);
  }
  for (const auto& window : windows) window->weight = weight;
}

int64_t LossBackward::accumulation_step() const {
  return latest_micro_batch(prepared_.windows(*state_.gradient_state()));
}

void LossBackward::set_accumulation_step(int64_t step) {
  require(step >= 0, Status::kInvalidArgument, "step is ", step, "; expected at least 0");
  for (const auto& window : prepared_.windows(*state_.gradient_state())) window->micro_batch = step;
}

}  // namespace accel::accelerator
