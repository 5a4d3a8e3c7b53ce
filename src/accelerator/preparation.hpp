// SPDX-License-Identifier: Apache-2.0
// Preparation: makes the prepared objects of a training loop from those of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerator/parameters/prepared_parameters.hpp"
#include "accelerator/prepared_objects.hpp"
#include "accelerator/replicas/replica_check.hpp"
#include "accelerator/steps/exchange_check.hpp"
#include "accelerator/steps/expert_balance.hpp"
#include "accelerator/steps/fp8_scales.hpp"
#include "accelerator/steps/step_clipping.hpp"
#include "accelerator/training_precision.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedules/scheduler.hpp"
#include "parallel/parallel_model.hpp"
#include "state/state.hpp"

namespace accel {
struct DataloaderConfig;
struct FsdpSettings;
struct LocalSgdSettings;
struct PrepareModelSettings;
struct TensorParallelSettings;
namespace data {
class Loader;
}
}  // namespace accel

namespace accel::accelerator {

struct PreparedObject;
struct ShardingChoice;

// How many steps a prepared scheduler makes for each update.
int64_t steps_per_update(const state::State& state);

class Preparation {
 public:
  // All are those of the accelerator that has this.
  Preparation(state::State& state, PreparedObjects& prepared, TrainingPrecision& precision)
      : state_(state), prepared_(prepared), precision_(precision) {}
  Preparation(const Preparation&) = delete;

  // Ahead of prepare_model(), so that weights can be loaded part by part.
  void split_layers(const nn::ModulePtr& module, const TensorParallelSettings& settings) const;
  // `sample_inputs` are a tuple or list of the model's, by which it is cut into stages, or nothing.
  nn::ModulePtr prepare_model(nn::ModulePtr module, const PrepareModelSettings& preparation,
                              const c10::IValue& sample_inputs = {});
  nn::ModulePtr prepare_model(nn::ModulePtr module);
  std::shared_ptr<optim::Optimizer> prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer);
  std::shared_ptr<optim::Scheduler> prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler);
  std::shared_ptr<data::PreparedDataLoader> prepare_data_loader(const data::Loader& loader,
                                                                const DataloaderConfig& configuration);
  // Prepares all of them or none; schedulers last, because they follow the optimizers.
  std::vector<PreparedObject> prepare(const std::vector<PreparedObject>& objects);

  // On the device, or that of the state.
  std::shared_ptr<PreparedParameters> prepare_parameters(nn::ModulePtr module, double bucket_cap_mb,
                                                         const FsdpSettings& fsdp,
                                                         std::optional<c10::Device> device = std::nullopt);
  // Prepares memory of the application. `tensors` gives it; an error of it on one rank is that of all.
  std::shared_ptr<PreparedParameters> register_parameters(const std::function<nn::NamedTensors()>& tensors,
                                                          double bucket_cap_mb, const FsdpSettings& fsdp);
  // Local SGD of a prepared model, with this state's ranks. Checkpoints include it as long as it lives.
  std::shared_ptr<parallel::LocalSgd> begin_local_sgd(const nn::ModulePtr& model, int64_t local_sgd_steps,
                                                      const LocalSgdSettings& settings,
                                                      parallel::CommunicatorPtr gradient_group);
  // Compares what is prepared over the ranks that must have equal values.
  ReplicaCheck& replicas() { return *replica_check_; }

 private:
  parallel::ModelRanks model_ranks(const FsdpSettings& settings) const;
  void add_expert_ranks(parallel::ModelRanks& ranks, const PrepareModelSettings& settings) const;
  ShardingChoice choose_sharding(const PrepareModelSettings& preparation, bool has_stages) const;
  bool is_for_stages(const nn::Module& module, const PrepareModelSettings& preparation) const;
  parallel::StagePlanPtr cut_into_stages(nn::Module& module, const PrepareModelSettings& preparation,
                                         const c10::IValue& sample_inputs, const parallel::ModelRanks& ranks) const;

  state::State& state_;
  PreparedObjects& prepared_;
  TrainingPrecision& precision_;
  const std::shared_ptr<StepClipping> step_clipping_ = std::make_shared<StepClipping>();
  const std::shared_ptr<ExpertBalance> expert_balance_ = std::make_shared<ExpertBalance>();
  const std::shared_ptr<Fp8Scales> fp8_scales_ = std::make_shared<Fp8Scales>();
  const std::shared_ptr<ExchangeCheck> exchange_check_ = std::make_shared<ExchangeCheck>();
  const std::shared_ptr<ReplicaCheck> replica_check_ = std::make_shared<ReplicaCheck>(state_, prepared_);
};

}  // namespace accel::accelerator
