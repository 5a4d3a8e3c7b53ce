#include "accelerator/prepared_model.hpp"

#include "tensor/tree.hpp"

namespace accel::accelerator {

PreparedModel::PreparedModel(nn::ModulePtr model, std::shared_ptr<parallel::DistributedDataParallel> ddp,
                             const ForwardPrecision& precision, kernels::ComputePolicy compute_policy,
                             std::shared_ptr<StepTimes> step_times)
    : Module("PreparedModel"),
      model_(std::move(model)),
      ddp_(std::move(ddp)),
      precision_(precision),
      compute_policy_(compute_policy),
      accumulation_(std::make_shared<state::AccumulationGroup>()),
      step_times_(std::move(step_times)) {
  // The parallel wrapper is no node of the tree: names stay "module.layers.0.weight" with and without it.
  add_child("module", model_);
  if (precision_.precision != Precision::kNo) casts_.emplace();
}

c10::IValue PreparedModel::forward_in_half(nn::Module& inner, const nn::Inputs& inputs) {
  if (!group_is_open_) casts_->start_group();
  group_is_open_ = !accumulation_->complete;
  const precision::AutocastWeightCache::Scope kept(&*casts_);
  const precision::AutocastGuard autocast(precision_.precision, precision_.device, precision_.autocast);
  return inner.call(inputs);
}

c10::IValue PreparedModel::forward(const nn::Inputs& inputs) {
  const StepTimes::Section timed(*step_times_, StepPart::kForward);
  const kernels::ComputeScope scope(compute_policy_);
  nn::Module& inner = ddp_ != nullptr ? static_cast<nn::Module&>(*ddp_) : *model_;
  if (precision_.precision == Precision::kNo) return inner.call(inputs);
  const c10::IValue output = forward_in_half(inner, inputs);
  return precision_.keep_output_dtype ? output : tree::convert_to_fp32(output);
}

nn::ModulePtr unwrap_model(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return unwrap_model(prepared->model());
  if (const auto* ddp = dynamic_cast<const parallel::DistributedDataParallel*>(module.get()))
    return unwrap_model(ddp->module());
  return module;
}

nn::ModulePtr unwrap_keeping_precision(const nn::ModulePtr& module) {
  const auto* prepared = dynamic_cast<const PreparedModel*>(module.get());
  const nn::ModulePtr model = unwrap_model(module);
  if (prepared == nullptr || prepared->precision().precision == Precision::kNo) return model;
  return std::make_shared<PreparedModel>(model, nullptr, prepared->precision(), prepared->compute_policy(),
                                         prepared->step_times());
}

parallel::DistributedDataParallel* ddp_of(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return prepared->ddp().get();
  return dynamic_cast<parallel::DistributedDataParallel*>(module.get());
}

NoSyncGuard::NoSyncGuard(std::vector<nn::ModulePtr> modules) {
  for (nn::ModulePtr& module : modules)
    if (parallel::DistributedDataParallel* ddp = ddp_of(module))
      former_.emplace_back(std::move(module), ddp->set_gradient_sync(false));
}

NoSyncGuard::~NoSyncGuard() {
  for (const auto& [module, sync] : former_) ddp_of(module)->set_gradient_sync(sync);
}

TriggerSyncGuard::TriggerSyncGuard(nn::ModulePtr module) : module_(std::move(module)) {
  parallel::DistributedDataParallel* const ddp = ddp_of(module_);
  if (ddp == nullptr) return;
  ddp->expect_backward();
  former_ = ddp->set_gradient_sync(true);
}

TriggerSyncGuard::~TriggerSyncGuard() {
  if (parallel::DistributedDataParallel* const ddp = ddp_of(module_)) ddp->set_gradient_sync(former_);
}

}  // namespace accel::accelerator
