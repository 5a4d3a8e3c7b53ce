// The training loop's composition: it holds what a program prepared, and puts the mechanisms of the other modules
// together.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/prepared_parameters.hpp"
#include "checkpoint/training_state.hpp"
#include "data/loader.hpp"
#include "data/prepared_dataloader.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "optim/scheduler.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "parallel/parallel_model.hpp"
#include "precision/autocast.hpp"
#include "precision/grad_scaler.hpp"
#include "state/state.hpp"
#include "tensor/backward.hpp"
#include "tensor/stateful.hpp"

namespace accel::accelerator {

// An object of the program that takes part in checkpoints.
struct RegisteredObject {
  std::string name;
  std::function<c10::IValue()> save;
  std::function<void(const c10::IValue&)> load;
};

// One object to prepare, or a prepared one: exactly one of the pointers is set.
struct PreparedObject {
  nn::ModulePtr model;
  PrepareModelSettings model_settings;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<data::Loader> loader;
  std::shared_ptr<optim::Scheduler> scheduler;
  std::optional<bool> device_placement;
};

class Accelerator {
 public:
  explicit Accelerator(const StateSettings& given);
  // Nothing is prepared in it yet.
  Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group);
  // Of the same job, with settings of its own.
  Accelerator(const Accelerator& parent, const StateSettings& given);

  state::State& state() { return state_; }
  const state::State& state() const { return state_; }

  // Both before anything is prepared.
  void set_grad_scaler(const GradScalerSettings& settings);
  void set_autocast(const AutocastSettings& settings);
  const AutocastSettings& autocast() const { return autocast_; }
  // Null when losses are not scaled.
  const std::shared_ptr<precision::GradScaler>& grad_scaler() const { return grad_scaler_; }

  nn::ModulePtr prepare_model(nn::ModulePtr module, const PrepareModelSettings& preparation = {});
  std::shared_ptr<optim::Optimizer> prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer);
  std::shared_ptr<optim::Scheduler> prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler);
  std::shared_ptr<data::PreparedDataLoader> prepare_data_loader(const data::Loader& loader,
                                                                const DataloaderConfig& configuration);
  // All of them, or none; schedulers come last, for they follow the optimizers.
  std::vector<PreparedObject> prepare(const std::vector<PreparedObject>& objects);

  std::shared_ptr<PreparedParameters> prepare_parameters(nn::ModulePtr module, double bucket_cap_mb);

  // Local SGD of a prepared model, with this state's ranks. Checkpoints include it as long as it lives.
  std::shared_ptr<parallel::LocalSgd> begin_local_sgd(const nn::ModulePtr& model, int64_t local_sgd_steps,
                                                      const LocalSgdSettings& settings,
                                                      parallel::CommunicatorPtr gradient_group);

  // Back-propagates loss / gradient_accumulation_steps.
  void backward(const at::Tensor& loss, const tensor::BackwardOptions& options = {});
  // Back-propagates a sum over `count` items so that the group ends with the gradients of the mean over all its items.
  void backward_sum(const at::Tensor& loss_sum, int64_t count, const tensor::BackwardOptions& options = {});
  // Updates the prepared LOMO optimizers meanwhile. @accelerate lomo_backward
  void lomo_backward(const at::Tensor& loss, std::optional<double> lr);
  bool sync_gradients() const { return state_.gradient_state()->sync_gradients(); }

  // Takes the loss scale out of the gradients of one prepared optimizer, or of all; unless gradients accumulate.
  // Whether they were complete.
  bool unscale_gradients(optim::Optimizer* optimizer);
  // The same for the optimizers that have parameters of this model, whatever accumulates.
  void unscale_gradients_of(const nn::Module& model);
  // As optim/clip.hpp, after the loss scale is taken out of the model's gradients. Nothing while gradients accumulate.
  std::optional<at::Tensor> clip_gradients_by_norm(const nn::ModulePtr& model, double max_norm, double norm_type);
  // Whether they were complete.
  bool clip_gradients_by_value(const nn::ModulePtr& model, double clip_value);

  // What the active loader says of its batch.
  state::LoaderProgress batch_in_hand() const;

  void register_for_checkpointing(RegisteredObject object);
  void save_state(const std::string& folder);
  void load_state(const std::string& folder);
  void save_model(const nn::Module& module, const std::string& folder);

  // What is really active, one a line.
  std::string describe() const;

  // Seeds the default generators, with the rank added where it is device specific, and what was registered for it.
  void set_seed(int64_t seed, bool device_specific);
  void add_seed_callback(std::function<void(int64_t)> seed) { seed_callbacks_.push_back(std::move(seed)); }

  const std::vector<std::shared_ptr<data::PreparedDataLoader>>& loaders() const { return loaders_; }
  // Ranks that ran out of inputs get what one that trained longest has: optimizers, schedulers, the loss scale.
  void broadcast_training_state(int rank);

  // Lets go of everything that is prepared; what was registered stays.
  void free_memory();
  // Memory that is only kept for later goes back.
  void release_cached_memory();
  // Waits for all ranks, then leaves the group.
  void end_training();

 private:
  friend class MicroBatch;

  // A model without what was wrapped around it.
  struct ModelEntry {
    parallel::ParallelModelPtr parallel() const;  // with its parallelism while the program has the prepared model

    nn::ModulePtr model;
    std::weak_ptr<PreparedModel> prepared;  // empty where the program computes the gradients
    std::shared_ptr<state::AccumulationGroup> accumulation;
  };
  // What takes part in checkpoints.
  struct SavedObject {
    checkpoint::StateKind kind;  // and so whether it is replicated or each rank's own
    std::string name;            // as in checkpoint::StateEntry
    std::shared_ptr<tensor::Stateful> object;
  };
  // The models of the micro-batch that is open, or all outside of one.
  struct Current {
    std::vector<nn::ModulePtr> models;
    state::AccumulationGroups groups;
  };

  void require_nothing_prepared(const char* what) const;
  void refuse_shards() const;
  void require_copies() const;
  void make_grad_scaler(const GradScalerSettings& settings);
  void run_backward(const at::Tensor& loss, double factor, const tensor::BackwardOptions& options);
  // From here on gradients of the open groups come in with this weight; those that are there already get it too.
  void weigh(double weight);
  std::vector<at::Tensor> gradients_of_current() const;
  std::vector<nn::ModulePtr> models() const;
  std::vector<std::shared_ptr<parallel::LocalSgd>> local_sgds() const;
  std::vector<SavedObject> saved_objects() const;
  state::AccumulationGroups groups() const;  // of the state itself, then of each model

  state::State state_;
  AutocastSettings autocast_;
  GradScalerSettings grad_scaler_settings_;
  std::shared_ptr<precision::GradScaler> grad_scaler_;
  const Current* current_ = nullptr;
  at::Tensor seed_;  // of the latest backward, and its one number
  double seed_factor_ = 0;
  std::vector<std::function<void(int64_t)>> seed_callbacks_;
  std::vector<ModelEntry> models_;
  std::vector<std::shared_ptr<PreparedOptimizer>> optimizers_;
  std::vector<std::shared_ptr<optim::Scheduler>> schedulers_;
  std::vector<std::shared_ptr<data::PreparedDataLoader>> loaders_;
  std::vector<std::weak_ptr<parallel::LocalSgd>> local_sgds_;  // in the order in which they began
  std::vector<RegisteredObject> objects_;
};

// One micro-batch of some models, while it lives: counted, and with the exchange of gradients held back until its group
// is complete.
class MicroBatch {
 public:
  MicroBatch(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& modules);
  ~MicroBatch();
  MicroBatch(const MicroBatch&) = delete;
  MicroBatch& operator=(const MicroBatch&) = delete;

 private:
  std::shared_ptr<Accelerator> accelerator_;
  Accelerator::Current current_;
  const Accelerator::Current* former_;
  std::optional<NoSyncGuard> no_sync_;
};

}  // namespace accel::accelerator
