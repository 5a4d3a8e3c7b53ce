// The training loop's composition: it holds what a program prepared, and puts the mechanisms of the other modules
// together.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accelerator/prepared_parameters.hpp"
#include "data/dataloader.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "optim/scheduler.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"
#include "state/state.hpp"

namespace accel::accelerator {

// @accelerate DataLoaderConfiguration
struct DataLoaderConfiguration {
  bool even_batches = true;
  std::optional<bool> split_batches;  // as the state's setting
  bool put_on_device = true;
  bool non_blocking = false;
};

// An object of the program that takes part in checkpoints.
struct RegisteredObject {
  std::string name;
  std::function<c10::IValue()> save;
  std::function<void(const c10::IValue&)> load;
};

class Accelerator {
 public:
  explicit Accelerator(const StateOptions& options) : state_(options) {}
  // Nothing is prepared in it yet.
  Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group)
      : state_(parent.state_, std::move(group)) {}

  state::State& state() { return state_; }
  const state::State& state() const { return state_; }

  nn::ModulePtr prepare_model(nn::ModulePtr module, const parallel::DdpOptions& options);
  std::shared_ptr<optim::Optimizer> prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer);
  std::shared_ptr<optim::Scheduler> prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler);
  std::shared_ptr<data::DataLoader> prepare_data_loader(const data::DataLoader& loader,
                                                        const DataLoaderConfiguration& configuration);

  std::shared_ptr<PreparedParameters> prepare_parameters(nn::ModulePtr module, double bucket_cap_mb);

  // Back-propagates loss / gradient_accumulation_steps.
  void backward(const at::Tensor& loss);
  bool sync_gradients() const { return state_.gradient_state()->sync_gradients(); }

  // How many rows of what is gathered of this batch are no repetitions of the loader; 0 for all.
  int64_t rows_for_metrics() const;

  void register_for_checkpointing(RegisteredObject object);
  void save_state(const std::string& folder);
  void load_state(const std::string& folder);
  void save_model(const nn::Module& module, const std::string& folder);

  // Lets go of everything that is prepared.
  void free_memory();
  // Waits for all ranks, then leaves the group.
  void end_training();

 private:
  state::State state_;
  std::vector<nn::ModulePtr> models_;  // without what was wrapped around them
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers_;
  std::vector<std::shared_ptr<optim::Scheduler>> schedulers_;
  std::vector<std::shared_ptr<data::DataLoader>> loaders_;
  std::vector<RegisteredObject> objects_;
};

}  // namespace accel::accelerator
