// SPDX-License-Identifier: Apache-2.0
#include "accelerator/prepared_model.hpp"

#include <c10/util/ScopeExit.h>

#include <string>
#include <utility>
#include <vector>

#include "accelerator/forward_precision.hpp"
#include "base/error.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

// A child that was replaced.
struct Replaced {
  nn::Module* owner;
  std::string name;
  nn::ModulePtr child;
};

void replace_parts(nn::Module& module, nn::ModulePtr (*unwrap)(const nn::ModulePtr&), std::vector<Replaced>& replaced) {
  const auto children = module.children();  // a copy: they are replaced
  for (const auto& [name, child] : children) {
    replace_parts(*unwrap_model(child), unwrap, replaced);
    nn::ModulePtr inner = unwrap(child);
    if (inner == child) continue;
    replaced.reserve(replaced.size() + 1);
    module.replace_child(name, std::move(inner));
    replaced.push_back({&module, name, child});
  }
}

}  // namespace

PreparedModel::PreparedModel(parallel::ParallelModelPtr parallel, ForwardPrecision precision,
                             kernels::ComputePolicy compute_policy, std::shared_ptr<StepTimes> step_times)
    : Module("PreparedModel"),
      parallel_(std::move(parallel)),
      precision_(std::make_shared<const ForwardPrecision>(std::move(precision))),
      compute_policy_(compute_policy),
      accumulation_(std::make_shared<state::AccumulationWindow>()),
      step_times_(std::move(step_times)) {
  // The parallel wrapper is not in the module tree: names stay "module.layers.0.weight" with and without it.
  add_child("module", model());
  if (precision_->precision != Precision::kNo && parallel_->parts() == nullptr) casts_.emplace(precision_->device);
}

bool PreparedModel::computes_in_fp8() const {
  return precision_->fp8 != nullptr && (model()->is_training() || precision_->fp8->recipe().use_in_evaluation);
}

c10::IValue PreparedModel::compute_in_half(const Forward& forward) {
  if (casts_ && !window_is_open_) casts_->start_accumulation_window();
  if (precision_->fp8 != nullptr && !window_is_open_) precision_->fp8->start_accumulation_window();
  window_is_open_ = in_step_ || !accumulation_->complete;
  const precision::AutocastWeightCache::Scope kept(casts_ ? &*casts_ : nullptr);
  const nn::Fp8Layers::Scope fp8(computes_in_fp8() ? precision_->fp8 : nullptr);
  const precision::AutocastGuard autocast(precision_->precision, precision_->device, precision_->autocast);
  return forward();
}

c10::IValue PreparedModel::compute(const Forward& forward, bool is_output) {
  const StepTimes::Section timed(*step_times_, StepPart::kForward);
  const kernels::ComputeScope scope(compute_policy_);
  const auto split = sequences_ == nullptr ? nullptr : sequences_->split().open({});
  if (precision_->precision == Precision::kNo) return forward();
  const c10::IValue output = compute_in_half(forward);
  return !is_output || precision_->keep_output_dtype ? output : tree::convert_to_fp32(output);
}

c10::IValue PreparedModel::forward(const nn::Inputs& inputs) {
  return compute([&] { return parallel_->call(inputs); }, /*is_output=*/true);
}

parallel::StagePipeline& PreparedModel::pipeline() const {
  parallel::StagePipeline* const pipeline = single_stage_ != nullptr ? single_stage_.get() : parallel_->pipeline();
  require(pipeline != nullptr, Status::kInvalidState,
          "the model is not in stages, although pipeline_parallel_size is above 1; expected one that was prepared "
          "without split_by_program and evaluation_mode");
  return *pipeline;
}

double PreparedModel::train_in_stages(const parallel::PipelineBatch& batch, const parallel::PipelineLoss& loss,
                                      double factor) {
  in_step_ = true;
  const auto ended = c10::make_scope_exit([this] {
    in_step_ = false;
    window_is_open_ = window_is_open_ && !accumulation_->complete;
  });
  return pipeline().train(batch, loss, factor,
                          [this](const Forward& forward, bool is_output) { return compute(forward, is_output); });
}

nn::ModulePtr unwrap_model(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return unwrap_model(prepared->model());
  if (const auto* parallel = dynamic_cast<const parallel::ParallelModel*>(module.get()))
    return unwrap_model(parallel->module());
  return module;
}

nn::ModulePtr unwrap_keeping_precision(const nn::ModulePtr& module) {
  const auto* prepared = dynamic_cast<const PreparedModel*>(module.get());
  const nn::ModulePtr model = unwrap_model(module);
  if (prepared == nullptr || prepared->precision().precision == Precision::kNo) return model;
  return std::make_shared<PreparedModel>(parallel::single_process_model(model), prepared->precision(),
                                         prepared->compute_policy(), prepared->step_times());
}

void unwrap_parts(nn::Module& module, nn::ModulePtr (*unwrap)(const nn::ModulePtr&)) {
  std::vector<Replaced> replaced;
  auto restored = c10::make_scope_exit([&replaced] {
    for (auto one = replaced.rbegin(); one != replaced.rend(); ++one)
      one->owner->replace_child(one->name, std::move(one->child));
  });
  replace_parts(module, unwrap, replaced);
  restored.release();
}

parallel::ParallelModelPtr parallel_model_of(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return prepared->parallel();
  if (auto parallel = std::dynamic_pointer_cast<parallel::ParallelModel>(module)) return parallel;
  return parallel::single_process_model(module);
}

parallel::ParallelModelPtr require_prepared(const nn::ModulePtr& module) {
  const auto* prepared = dynamic_cast<const PreparedModel*>(module.get());
  require(prepared != nullptr, Status::kInvalidArgument,
          "module is not prepared; expected what accel_prepare_model() gave");
  return prepared->parallel();
}

c10::IValue describe_fp8(const nn::ModulePtr& module) {
  require_prepared(module);
  const auto& fp8 = static_cast<const PreparedModel&>(*module).precision().fp8;
  auto described = tree::new_map();
  if (fp8 == nullptr) return described;
  auto layers = tree::new_list();
  for (const auto& [name, weight] : fp8->selection().layers) layers.push_back(name);
  auto skipped = tree::new_map();
  for (const auto& [name, reason] : fp8->selection().skipped) skipped.insert(name, reason);
  described.insert("scaling", precision::name_of(fp8->recipe().scaling));
  described.insert("format", precision::name_of(fp8->recipe().format));
  described.insert("layers", layers);
  described.insert("skipped", skipped);
  described.insert("overflows", fp8->overflows());
  return described;
}

NoSyncGuard::NoSyncGuard(const std::vector<nn::ModulePtr>& modules) {
  for (const nn::ModulePtr& module : modules) {
    auto model = parallel_model_of(module);
    const bool former = model->set_gradient_sync(false);
    former_.emplace_back(std::move(model), former);
  }
}

NoSyncGuard::~NoSyncGuard() {
  for (const auto& [model, sync] : former_) model->set_gradient_sync(sync);
}

TriggerSyncGuard::TriggerSyncGuard(const nn::ModulePtr& module) : model_(parallel_model_of(module)) {
  if (auto* const exchange = model_->exchange()) exchange->expect_backward();
  former_ = model_->set_gradient_sync(true);
}

TriggerSyncGuard::~TriggerSyncGuard() { model_->set_gradient_sync(former_); }

}  // namespace accel::accelerator
