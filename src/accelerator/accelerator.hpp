// Accelerator: has the prepared objects of a training loop, and combines the mechanisms of the other modules.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/checkpoints/prepared_files.hpp"
#include "accelerator/checkpoints/project_checkpoint.hpp"
#include "accelerator/checkpoints/training_checkpoint.hpp"
#include "accelerator/parameters/prepared_parameters.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_objects.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/sharding_choice.hpp"
#include "accelerator/step_clipping.hpp"
#include "data/loader.hpp"
#include "data/prepared_dataloader.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedules/scheduler.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/placed_parameters.hpp"
#include "precision/autocast.hpp"
#include "precision/grad_scaler.hpp"
#include "state/state.hpp"
#include "tensor/autograd/backward.hpp"
#include "tensor/stateful.hpp"

namespace accel::track {
class LiveMetricsServer;
class Throughput;
class Trackers;
}  // namespace accel::track

namespace accel::accelerator {

// One object to prepare, or a prepared one: exactly one pointer is set.
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
  // Without prepared objects.
  Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group);
  // In the same job, with its own settings.
  Accelerator(const Accelerator& parent, const StateSettings& given);
  Accelerator(const Accelerator&) = delete;  // its parts refer to each other
  Accelerator& operator=(const Accelerator&) = delete;

  state::State& state() { return state_; }
  const state::State& state() const { return state_; }

  // Both only before anything is prepared.
  void set_grad_scaler(const GradScalerSettings& settings);
  void set_autocast(const AutocastSettings& settings);
  const AutocastSettings& autocast() const { return autocast_; }
  // Null if losses are not scaled.
  const std::shared_ptr<precision::GradScaler>& grad_scaler() const { return prepared_.grad_scaler; }

  nn::ModulePtr prepare_model(nn::ModulePtr module, const PrepareModelSettings& preparation = {});
  std::shared_ptr<optim::Optimizer> prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer);
  std::shared_ptr<optim::Scheduler> prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler);
  std::shared_ptr<data::PreparedDataLoader> prepare_data_loader(const data::Loader& loader,
                                                                const DataloaderConfig& configuration);
  // Prepares all of them or none; schedulers last, because they follow the optimizers.
  std::vector<PreparedObject> prepare(const std::vector<PreparedObject>& objects);

  // On the device, or that of the state.
  std::shared_ptr<PreparedParameters> prepare_parameters(nn::ModulePtr module, double bucket_cap_mb,
                                                         const FsdpSettings& fsdp = {},
                                                         std::optional<c10::Device> device = std::nullopt);
  // Prepares memory of the application. `tensors` gives it; an error of it on one rank is that of all.
  std::shared_ptr<PreparedParameters> register_parameters(const std::function<nn::NamedTensors()>& tensors,
                                                          double bucket_cap_mb, const FsdpSettings& fsdp = {});
  // A micro-batch of gradients, and in the last one of an accumulation window the update. Returns the norm of complete
  // gradients if they are clipped or it is wanted.
  std::optional<double> step_parameters(PreparedParameters& parameters, const optim::Optimizer& optimizer,
                                        const nn::NamedTensors& gradients, const ParametersStepSettings& settings,
                                        bool wants_norm);

  // Local SGD of a prepared model, with this state's ranks. Checkpoints include it as long as it lives.
  std::shared_ptr<parallel::LocalSgd> begin_local_sgd(const nn::ModulePtr& model, int64_t local_sgd_steps,
                                                      const LocalSgdSettings& settings,
                                                      parallel::CommunicatorPtr gradient_group);

  // Back-propagates loss / gradient_accumulation_steps.
  void backward(const at::Tensor& loss, const tensor::BackwardOptions& options = {});
  // Back-propagates a sum over `count` items. The accumulation window ends with the gradients of the mean over all its
  // items.
  void backward_sum(const at::Tensor& loss_sum, int64_t count, const tensor::BackwardOptions& options = {});
  // Backward that updates the prepared LOMO optimizers. @accelerate lomo_backward
  void lomo_backward(const at::Tensor& loss, std::optional<double> lr);
  // The micro-batches of the models since a loader ended: of the one that has most. @accelerate step
  int64_t accumulation_step() const;
  void set_accumulation_step(int64_t step);
  bool sync_gradients() const { return state_.gradient_state()->sync_gradients(); }

  // Unscales the gradients of one prepared optimizer, or of all; does nothing while gradients accumulate. Returns
  // whether they were complete.
  bool unscale_gradients(optim::Optimizer* optimizer);
  // Unscales for the optimizers of this model's parameters, also while gradients accumulate.
  void unscale_gradients_of(const nn::Module& model);
  // Clips as optim/clip.hpp does, after unscaling the model's gradients. Nothing while gradients accumulate.
  std::optional<at::Tensor> clip_gradients_by_norm(const nn::ModulePtr& model, double max_norm, double norm_type);
  // Returns whether gradients were complete.
  bool clip_gradients_by_value(const nn::ModulePtr& model, double clip_value);

  // The progress of the active loader.
  state::LoaderProgress batch_in_hand() const;

  // Saves and loads everything that is prepared or registered; with the names and numbers of a project; and single
  // models and optimizers.
  TrainingCheckpoints& checkpoints() { return checkpoints_; }
  ProjectCheckpoints& projects() { return projects_; }
  const PreparedFiles& files() const { return files_; }

  // The active mechanisms, one per line.
  std::string describe() const;

  // Seeds the default generators, plus the rank if device specific, and calls the registered callbacks.
  void set_seed(int64_t seed, bool device_specific);
  void add_seed_callback(std::function<void(int64_t)> seed) { seed_callbacks_.push_back(std::move(seed)); }

  const std::vector<std::shared_ptr<data::PreparedDataLoader>>& loaders() const { return prepared_.loaders; }
  const std::vector<std::shared_ptr<PreparedOptimizer>>& optimizers() const { return prepared_.optimizers; }
  const parallel::PlacedParameters& placed_parameters() const { return *prepared_.placed; }
  // After uneven inputs: all ranks get the optimizers, schedulers and loss scale of one that trained longest.
  void broadcast_training_state(int rank);

  // The trackers of the run; each state and group has its own.
  track::Trackers& trackers() { return *trackers_; }
  track::Throughput& throughput() { return *throughput_; }
  // Null without one. See accelerator/step_measurement.hpp.
  std::shared_ptr<track::LiveMetricsServer>& live_metrics() { return live_metrics_; }

  // Releases all prepared objects; registered ones stay.
  void free_memory();
  // Returns cached memory to the system.
  void release_cached_memory();
  // Waits for all ranks, then leaves the group.
  void end_training();

 private:
  friend class MicroBatch;

  // The models of the current micro-batch, or all outside of one.
  struct Current {
    std::vector<nn::ModulePtr> models;
    state::AccumulationWindows windows;
  };

  void require_nothing_prepared(const char* what) const;
  parallel::ModelRanks model_ranks(const FsdpSettings& settings) const;
  ShardingChoice choose_sharding(const PrepareModelSettings& preparation) const;
  void make_grad_scaler(const std::optional<GradScalerSettings>& given);
  void run_backward(const at::Tensor& loss, double factor, const tensor::BackwardOptions& options);
  // Sets the weight of losses in the open accumulation windows; gradients that are already accumulated are rescaled.
  void set_loss_weight(double weight);
  std::vector<at::Tensor> gradients_of_current() const;
  void require_split(const nn::Module& module, const PrepareModelSettings& preparation) const;
  void require_known_norm(const nn::Module& module) const;
  int64_t steps_per_update() const;  // of a prepared scheduler
  struct Clipping {
    parallel::ParallelModelPtr model;  // with uneven inputs; null: no rank needs to be told
    std::vector<at::Tensor> parameters;
  };
  // Gradients are unscaled.
  Clipping begin_clipping(const nn::ModulePtr& model);
  state::State state_;
  AutocastSettings autocast_;
  std::optional<GradScalerSettings> own_grad_scaler_;  // by set_grad_scaler()
  const Current* current_ = nullptr;
  at::Tensor seed_;  // of the latest backward, which has this factor
  double seed_factor_ = 0;
  std::vector<std::function<void(int64_t)>> seed_callbacks_;
  PreparedObjects prepared_{state_.mesh()};
  TrainingCheckpoints checkpoints_{state_, prepared_};
  ProjectCheckpoints projects_{state_, checkpoints_};
  const PreparedFiles files_{state_, prepared_, checkpoints_};
  const std::shared_ptr<StepClipping> step_clipping_ = std::make_shared<StepClipping>();
  const std::shared_ptr<track::Trackers> trackers_;
  const std::shared_ptr<track::Throughput> throughput_;
  std::shared_ptr<track::LiveMetricsServer> live_metrics_;
};

// A micro-batch of some models, as a guard: counts it, and turns the exchange of gradients off until the accumulation
// window is complete.
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
