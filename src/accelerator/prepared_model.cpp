#include "accelerator/prepared_model.hpp"

#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

parallel::DistributedDataParallel* ddp_of(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return prepared->ddp();
  return dynamic_cast<parallel::DistributedDataParallel*>(module.get());
}

}  // namespace

PreparedModel::PreparedModel(nn::ModulePtr model, std::shared_ptr<parallel::DistributedDataParallel> ddp,
                             Precision precision, c10::DeviceType device)
    : Module("PreparedModel"), model_(std::move(model)), ddp_(std::move(ddp)), precision_(precision), device_(device) {
  // The parallel wrapper is no node of the tree: names stay "module.layers.0.weight" with and without it.
  add_child("module", model_);
}

c10::IValue PreparedModel::forward(const nn::Inputs& inputs) {
  nn::Module& inner = ddp_ != nullptr ? static_cast<nn::Module&>(*ddp_) : *model_;
  if (precision_ == Precision::kNo) return inner.call(inputs);
  const c10::IValue output = [&] {
    const precision::AutocastGuard autocast(precision_, device_);
    return inner.call(inputs);
  }();
  return tree::convert_to_fp32(output);
}

nn::ModulePtr unwrap_model(const nn::ModulePtr& module) {
  if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get())) return unwrap_model(prepared->model());
  if (const auto* ddp = dynamic_cast<const parallel::DistributedDataParallel*>(module.get()))
    return unwrap_model(ddp->module());
  return module;
}

NoSyncGuard::NoSyncGuard(std::vector<nn::ModulePtr> modules) {
  for (nn::ModulePtr& module : modules)
    if (parallel::DistributedDataParallel* ddp = ddp_of(module))
      former_.emplace_back(std::move(module), ddp->set_gradient_sync(false));
}

NoSyncGuard::~NoSyncGuard() {
  for (const auto& [module, sync] : former_) ddp_of(module)->set_gradient_sync(sync);
}

}  // namespace accel::accelerator
