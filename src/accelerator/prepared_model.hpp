// What prepare_model() gives: the model under its precision and its parallelism.
#pragma once

#include "nn/module.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "precision/autocast.hpp"

namespace accel::accelerator {

class PreparedModel final : public nn::Module {
 public:
  PreparedModel(nn::ModulePtr model, std::shared_ptr<parallel::DistributedDataParallel> ddp, Precision precision,
                c10::DeviceType device);

  const nn::ModulePtr& model() const { return model_; }
  parallel::DistributedDataParallel* ddp() const { return ddp_.get(); }  // null with one process

 protected:
  // Under autocast; half-precision outputs become float32, as the loss is computed outside.
  c10::IValue forward(const nn::Inputs& inputs) override;

 private:
  nn::ModulePtr model_;
  std::shared_ptr<parallel::DistributedDataParallel> ddp_;
  Precision precision_;
  c10::DeviceType device_;
};

// The model inside a prepared one, at any depth; the module itself when it is not prepared.
nn::ModulePtr unwrap_model(const nn::ModulePtr& module);

// Gradients of the models are not exchanged while it lives.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::vector<nn::ModulePtr> modules);
  ~NoSyncGuard();
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::vector<std::pair<nn::ModulePtr, bool>> former_;
};

}  // namespace accel::accelerator
