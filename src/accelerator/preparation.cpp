// SPDX-License-Identifier: Apache-2.0
#include "accelerator/preparation.hpp"
#include "accelerator/forward_precision.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerator/deepspeed_plugins.hpp"
#include "accelerator/parameters/fp8_all_gather.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_object.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/prepared_scheduler.hpp"
#include "accelerator/ranks.hpp"
#include "accelerator/sequence_keys.hpp"
#include "accelerator/sharding_choice.hpp"
#include "accelerator/steps/gradient_clipping.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "config/generated/choices/scheduler_steps.hpp"
#include "config/generated/choices/sharding_strategy.hpp"
#include "config/generated/settings/parallelism/tensor_parallel.hpp"
#include "config/generated/settings/prepare/dataloader_config.hpp"
#include "config/generated/settings/prepare/fsdp.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "config/generated/settings/state/state.hpp"
#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "data/prepared_dataloader.hpp"
#include "nn/initial_values.hpp"
#include "nn/low_precision/fp8_routes.hpp"
#include "nn/module_walks.hpp"
#include "nn/weight_store.hpp"
#include "optim/lomo.hpp"
#include "optim/parameter_optimizer.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "parallel/schedule/sharding_schedule.hpp"
#include "state/random.hpp"

namespace accel::accelerator {
namespace {

void require_apart(const nn::Module& module, const parallel::PlacedParameters& placed) {
  for (const auto& [name, parameter] : nn::named_parameters(module))
    require(placed.find(parameter) == nullptr, Status::kInvalidState, "parameter '", name,
            "' belongs to a sharded model that is prepared already, and this rank has a part of it; expected "
            "parameters of this model alone");
}

// The model inside a prepared one, a part of it, or one that is tied to it.
void require_unprepared(const nn::Module& module, const std::vector<ModelEntry>& models) {
  std::unordered_set<const at::TensorImpl*> prepared;
  for (const ModelEntry& entry : models)
    for (const at::Tensor& parameter : entry.model->parameters()) prepared.insert(parameter.unsafeGetTensorImpl());
  for (const auto& [name, parameter] : nn::named_parameters(module))
    require(prepared.count(parameter.unsafeGetTensorImpl()) == 0, Status::kInvalidState, "parameter '", name,
            "' belongs to a model that is prepared already; expected that its layers are split before");
}

constexpr const char* kStageAxis = "pipeline";

// Optimizers that compute an update from a whole parameter, or with the norm of all gradients in a backward.
void require_whole_parameters(const optim::Optimizer& optimizer, const parallel::PlacedParameters& placed) {
  if (optimizer.is_elementwise() && !optim::is_lomo(optimizer)) return;
  const auto* const own = dynamic_cast<const optim::ParameterOptimizer*>(&optimizer);
  const std::vector<at::Tensor> parameters = optimizer.parameters();
  const bool has_parts =
      optim::is_lomo(optimizer) ? !placed.axes_of(parameters).empty() : placed.have_parts(parameters);
  require(!has_parts, Status::kUnsupported, "the optimizer ",
          own == nullptr ? std::string("of the application") : own->rule().name(),
          " computes an update from a whole parameter, of which a rank has a part where a model is sharded or split, "
          "or its "
          "experts are shared out; expected one that updates each element by itself, such as AdamW or SGD, or a model "
          "without parts");
}

// Ranks that have parts of the same layers draw from the random stream of their first one.
void draw_missing_values(nn::Module& module, const parallel::ModelRanks& ranks, const nn::NamedTensors& whole) {
  if (!nn::lacks_memory(module)) return;
  at::Generator stream = at::detail::getDefaultCPUGenerator();
  at::Tensor state;
  {
    const std::lock_guard<std::mutex> lock(stream.mutex());
    state = stream.get_state();
  }
  const nn::Placements placements = nn::placements(module);
  const auto take_from_first = [&](const parallel::CommunicatorPtr& sharing, const char* axis) {
    if (sharing == nullptr || !placements.have_axis(axis)) return;
    const at::Tensor sent = state.to(sharing->device());
    sharing->broadcast(sent, /*from=*/0);
    state = sent.cpu();
  };
  take_from_first(ranks.tensor, "tensor");
  take_from_first(ranks.expert, parallel::kExpertAxes);
  at::Generator own = at::detail::createCPUGenerator();
  own.set_state(state);
  nn::draw_initial_values(module, own, whole);
  const std::lock_guard<std::mutex> lock(stream.mutex());
  stream.set_state(own.get_state());
}

}  // namespace

// Not where there is one stage, or the program has split the model.
bool Preparation::is_for_stages(const nn::Module& module, const PrepareModelSettings& preparation) const {
  return state_.groups().mesh()->size(kStageAxis) > 1 && !preparation.split_by_program &&
         !preparation.evaluation_mode && !prepared_.placed->describe_parts(module, kStageAxis);
}

parallel::StagePlanPtr Preparation::cut_into_stages(nn::Module& module, const PrepareModelSettings& preparation,
                                                    const c10::IValue& sample_inputs,
                                                    const parallel::ModelRanks& ranks) const {
  if (!is_for_stages(module, preparation)) return nullptr;
  const bool is_sharded = preparation.fsdp.enabled.value_or(false) && ranks.gradient->size() > 1;
  const bool defers_products = !is_sharded || !parallel::reshards_after_forward(preparation.fsdp);
  comm::Mesh& mesh = *state_.groups().mesh();
  const auto of_all_stages = ranks.tensor != nullptr ? mesh.group("pipeline,tensor") : nullptr;
  const int64_t first_of_host = state_.process_index() - state_.local_process_index();
  return parallel::cut_into_stages(module,
                                   {mesh.group(kStageAxis), state_.communicator(), of_all_stages, first_of_host}, ranks,
                                   preparation, sample_inputs, defers_products);
}

// A mesh with a shard axis says who shares a copy. Without one all ranks do.
parallel::ModelRanks Preparation::model_ranks(const FsdpSettings& settings) const {
  comm::Mesh& mesh = *state_.groups().mesh();
  const auto tensor = mesh.size("tensor") > 1 ? mesh.group("tensor") : nullptr;
  const auto summed = tensor == nullptr ? nullptr : mesh.group("replicate,shard,context,tensor");
  if (mesh.size("shard") > 1) {
    const std::string axes = "shard,context";
    return {state_.groups().gradient_group(), mesh.group(axes), mesh.group("replicate"), axes, tensor, summed};
  }
  const bool is_hybrid = settings.sharding_strategy == ShardingStrategy::kHybridShard ||
                         settings.sharding_strategy == ShardingStrategy::kHybridShardZero2;
  const int64_t on_host = state_.local_num_processes();
  require(
      !is_hybrid || on_host == state_.num_processes(), Status::kInvalidArgument,
      "sharding_strategy is HYBRID_SHARD and data_parallel_shard_size is 1; expected the number of ranks that share a "
      "copy, such as the ",
      on_host, " of this host");
  return {state_.groups().gradient_group(),
          state_.groups().gradient_group(),
          nullptr,
          "replicate,shard,context",
          tensor,
          summed};
}

// Ranks along the axis tensor have the same tokens, unless these are split: whole experts have each of them as often.
void Preparation::add_expert_ranks(parallel::ModelRanks& ranks, const PrepareModelSettings& settings) const {
  const int64_t experts = state_.settings().expert_parallel_size;
  if (experts == 1) return;
  comm::Mesh& mesh = *state_.groups().mesh();
  const bool has_parts = settings.expert_parallel.tensor_parallel_experts && ranks.tensor != nullptr;
  const int64_t whole = mesh.size("shard,context");
  require(!has_parts || whole % experts == 0, Status::kInvalidArgument,
          "tensor_parallel_experts is 1, expert_parallel_size is ", experts, " and there are ", whole,
          " ranks along shard and context; expected a divisor, or 0 for whole experts on the ranks along tensor");
  const std::string axis = parallel::expert_axis(settings, ranks.tensor != nullptr), shards = axis + "_shard";
  ranks.expert = mesh.group(axis);
  const bool has_shards = mesh.size("shard") > 1;
  auto of_experts = std::make_shared<parallel::ModelRanks>();
  of_experts->gradient = mesh.group("replicate," + shards);
  of_experts->shard_axes = has_shards ? shards : "replicate," + shards;
  of_experts->shard = mesh.group(of_experts->shard_axes);
  of_experts->replicate = has_shards ? mesh.group("replicate") : nullptr;
  const int64_t times = has_parts || settings.tensor_parallel.sequence_parallel ? 1 : mesh.size("tensor");
  of_experts->gradient_scale =
      static_cast<double>(of_experts->gradient->size()) / static_cast<double>(ranks.gradient->size() * times);
  ranks.experts = std::move(of_experts);
}

ShardingChoice Preparation::choose_sharding(const PrepareModelSettings& preparation, bool has_stages) const {
  ShardingJob job;
  job.mixed_precision = state_.settings().mixed_precision;
  job.accumulation = state_.gradient_state()->settings();
  job.data_parallel_size = state_.groups().data_parallel()->size();
  job.has_shards = state_.groups().mesh()->size("shard") > 1;
  job.has_stages = has_stages;
  job.reports_keys = prepared_.models.empty();
  for (const auto& loader : prepared_.loaders)
    if (const auto rows = loader->total_batch_size()) job.batch_sizes.push_back(*rows / job.data_parallel_size);
  return accelerator::choose_sharding(preparation, job);
}

void Preparation::split_layers(const nn::ModulePtr& module, const TensorParallelSettings& settings) const {
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the model is prepared already; expected that its layers are split before");
  require_apart(*module, *prepared_.placed);
  require_unprepared(*module, prepared_.models);
  comm::Mesh& mesh = *state_.groups().mesh();
  PrepareModelSettings preparation;
  preparation.tensor_parallel = settings;
  parallel::split_layers(*module, mesh.size("tensor") > 1 ? mesh.group("tensor") : nullptr, preparation,
                         state_.device());
}

nn::ModulePtr Preparation::prepare_model(nn::ModulePtr module, const PrepareModelSettings& preparation,
                                         const c10::IValue& sample_inputs) {
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the model is prepared already; prepare the model inside it");
  require_apart(*module, *prepared_.placed);
  const bool is_dispatched = module->weight_store() != nullptr && module->weight_store()->is_spread();
  require(!is_dispatched || state_.num_processes() == 1 || preparation.bypass_device_map, Status::kInvalidArgument,
          "the model is dispatched over several devices, and there are ", state_.num_processes(),
          " processes, each of which would train all of it; expected a model on one device, or bypass_device_map");
  PrepareModelSettings settings = preparation;
  settings.deepspeed = find_deepspeed_plugin(preparation.deepspeed, prepared_.models);
  ShardingChoice sharding = choose_sharding(settings, is_for_stages(*module, settings));
  if (sharding.gradient_clipping > 0) require_known_norm(*module, *prepared_.placed, *state_.groups().mesh());
  SequenceSplitting::ChoicePtr sequences = prepared_.sequences->with(settings.context_parallel);
  settings.fsdp = std::move(sharding.settings);
  parallel::ModelRanks ranks = model_ranks(settings.fsdp);
  add_expert_ranks(ranks, settings);
  const nn::NamedTensors whole = nn::lacks_memory(*module) ? nn::named_members(*module) : nn::NamedTensors();
  const parallel::StagePlanPtr stages = cut_into_stages(*module, settings, sample_inputs, ranks);
  parallel::split_layers(*module, ranks.tensor, settings, state_.device(), /*is_stage=*/stages != nullptr);
  parallel::share_experts(*module, ranks, settings, /*is_stage=*/stages != nullptr);
  const bool may_lack_memory = *settings.fsdp.enabled && settings.fsdp.cpu_ram_efficient_loading;
  if (preparation.device_placement.value_or(state_.settings().device_placement) && !may_lack_memory &&
      module->weight_store() == nullptr) {
    draw_missing_values(*module, ranks, whole);
    module->to(std::nullopt, state_.device());
  }
  std::shared_ptr<nn::Fp8Layers> fp8;
  if (const auto recipe = precision_.fp8())
    fp8 = nn::make_fp8_layers(*recipe, nn::select_fp8_layers(*module, *recipe), state_.device());
  const ForwardPrecision precision{state_.settings().mixed_precision, state_.device().type(), precision_.autocast(),
                                   fp8, state_.settings().keep_output_dtype};
  auto prepared = std::make_shared<PreparedModel>(
      parallel::parallelize(module, ranks, settings, state_.device(), stages, fp8_all_gather(fp8)), precision,
      state_.compute_policy(), state_.communicator()->step_times());
  if (fp8 != nullptr) fp8->keep_casts(prepared->parallel()->parts() == nullptr);
  if (state_.groups().mesh()->size("pipeline") == 1)
    prepared->set_single_stage(parallel::single_stage(
        *prepared->parallel(), settings, state_.groups().mesh()->group("pipeline"), ranks.gradient, state_.device()));
  if (settings.context_parallel.inputs_are_split) prepared->set_sequences(prepared_.sequences);
  precision_.follow_loss_scale(sharding.loss_scale);  // the last step that can refuse
  prepared_.sequences->take(std::move(sequences));
  if (settings.split_by_program) prepared_.sequences->leave_to_program();
  prepared_.placed->add(prepared->parallel());
  exchange_check_->add(prepared->parallel());
  expert_balance_->add(*module, ranks.summed != nullptr ? ranks.summed : ranks.gradient);
  if (fp8 != nullptr)
    fp8_scales_->add(fp8, prepared->parallel(), ranks.summed != nullptr ? ranks.summed : ranks.gradient);
  if (sharding.gradient_clipping > 0) step_clipping_->add(prepared->parallel(), sharding.gradient_clipping);
  state_.gradient_state()->set_settings(sharding.accumulation);
  const bool verifies = settings.tensor_parallel.verify_gradients && nn::placements(*module).have_axis("tensor");
  prepared_.models.push_back({std::move(module), prepared, prepared->accumulation(), nullptr, nullptr,
                              sharding.deepspeed, std::make_shared<const DeepspeedSettings>(settings.deepspeed),
                              verifies});
  return prepared;
}

nn::ModulePtr Preparation::prepare_model(nn::ModulePtr module) {
  return prepare_model(std::move(module), PrepareModelSettings());
}

std::shared_ptr<optim::Optimizer> Preparation::prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer) {
  require(std::dynamic_pointer_cast<PreparedOptimizer>(optimizer) == nullptr, Status::kInvalidState,
          "the optimizer is prepared already; prepare the optimizer inside it");
  require_whole_parameters(*optimizer, *prepared_.placed);
  auto prepared = std::make_shared<PreparedOptimizer>(
      std::move(optimizer), state_.gradient_state(), prepared_.grad_scaler, state_.communicator()->step_times(),
      prepared_.placed, step_clipping_, exchange_check_, prepared_.optimizers.size(), expert_balance_, fp8_scales_,
      state_.device());
  prepared->set_after_update([check = std::weak_ptr<ReplicaCheck>(replica_check_)] {
    if (const auto open = check.lock()) open->count_update();
  });
  prepared_.optimizers.push_back(prepared);
  return prepared;
}

int64_t steps_per_update(const state::State& state) {
  const auto& settings = state.settings();
  const bool per_batch = settings.scheduler_steps == SchedulerSteps::kPerBatch;
  return per_batch && !settings.split_batches ? state.groups().data_parallel()->size() : 1;
}

std::shared_ptr<optim::Scheduler> Preparation::prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler) {
  require(std::dynamic_pointer_cast<PreparedScheduler>(scheduler) == nullptr, Status::kInvalidState,
          "the scheduler is prepared already; prepare the scheduler inside it");
  SchedulerStepping stepping;
  const auto& settings = state_.settings();
  stepping.step_with_optimizer = settings.step_scheduler_with_optimizer;
  const bool per_batch = settings.scheduler_steps == SchedulerSteps::kPerBatch;
  stepping.steps_per_update = steps_per_update(state_);
  stepping.stop_at_end = !per_batch || !settings.split_batches;  // Accelerate lets shared batches run into the end
  // Its own optimizer if that is prepared; otherwise all.
  std::vector<std::shared_ptr<optim::Optimizer>> waited_for(prepared_.optimizers.begin(), prepared_.optimizers.end());
  for (const auto& optimizer : prepared_.optimizers)
    if (scheduler->optimizer() == optimizer || scheduler->optimizer() == optimizer->inner()) waited_for = {optimizer};
  auto prepared = std::make_shared<PreparedScheduler>(std::move(scheduler), std::move(waited_for),
                                                      state_.gradient_state(), stepping);
  prepared_.schedulers.push_back(prepared);
  return prepared;
}

std::shared_ptr<data::PreparedDataLoader> Preparation::prepare_data_loader(const data::Loader& loader,
                                                                           const DataloaderConfig& configuration) {
  const auto* const plain = dynamic_cast<const data::DataLoader*>(&loader);
  require(plain != nullptr, Status::kInvalidState,
          "the loader is prepared already; prepare the loader that it was made from");
  data::ShardOptions sharding{configuration};
  sharding.num_processes = state_.groups().data_parallel()->size();
  sharding.process_index = state_.groups().data_parallel()->rank();
  sharding.split_batches = configuration.split_batches.value_or(state_.settings().split_batches);
  if (configuration.put_on_device.value_or(state_.settings().device_placement)) sharding.device = state_.device();
  sharding.communicator = state_.communicator();
  sharding.process_indices = state_.groups().data_parallel_indices();
  sharding.gradient_state = state_.gradient_state();
  sharding.step_times = state_.communicator()->step_times();
  if (SequenceKeys keys(configuration.sequence_keys.value); !keys.empty())
    sharding.part_of_batch = [keys = std::move(keys), sequences = prepared_.sequences](const c10::IValue& batch) {
      return keys.part_of(batch, sequences->split());
    };
  const std::string rng_types = state_.settings().rng_types;
  if (!rng_types.empty())
    sharding.at_epoch_begin = [communicator = state_.communicator(), device = state_.device(), rng_types] {
      state::synchronize_rng_states(*communicator, device, rng_types, at::Generator());
    };
  auto prepared = std::make_shared<data::PreparedDataLoader>(*plain, sharding);
  if (sharding.non_blocking && sharding.device && !loader.input().options.pin_memory)
    log(LogLevel::kWarning,
        "non_blocking is 1 for a loader whose pin_memory is 0: copies to a GPU from memory that is not page-locked "
        "block all the same; set pin_memory to 1, or non_blocking to 0");
  prepared_.loaders.push_back(prepared);
  return prepared;
}

std::shared_ptr<PreparedParameters> Preparation::prepare_parameters(nn::ModulePtr module, double bucket_cap_mb,
                                                                    const FsdpSettings& fsdp,
                                                                    std::optional<c10::Device> given) {
  const c10::Device device = given.value_or(state_.device());
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the module is prepared already; expected one whose gradients the program computes");
  require_apart(*module, *prepared_.placed);
  PrepareModelSettings preparation;
  preparation.fsdp = fsdp;
  const FsdpSettings settings = choose_sharding(preparation, /*has_stages=*/false).settings;
  require(!settings.activation_checkpointing, Status::kUnsupported,
          "activation_checkpointing is 1 for parameters whose gradients the program computes, and with them the "
          "activations; expected 0");
  if (!*settings.enabled || !settings.cpu_ram_efficient_loading) module->to(std::nullopt, device);
  std::vector<TrainedParameter> trained = trained_parameters(*module);
  const parallel::ParallelGradients parallel =
      parallel::parallelize_gradients(module, model_ranks(settings), settings, bucket_cap_mb, device);
  require(parallel.gradients->size() == trained.size(), Status::kUnsupported, "ignored_modules leaves out ",
          trained.size() - parallel.gradients->size(),
          " trainable parameters, whose gradients no rank would average; expected parameters that are all sharded");
  prepared_.placed->add(parallel.model);
  auto window = std::make_shared<state::AccumulationWindow>();
  prepared_.models.push_back({std::move(module), {}, window, parallel.model});
  return std::make_shared<PreparedParameters>(parallel, std::move(trained), state_.groups().gradient_group(),
                                              state_.gradient_state(), std::move(window));
}

std::shared_ptr<parallel::LocalSgd> Preparation::begin_local_sgd(const nn::ModulePtr& model, int64_t local_sgd_steps,
                                                                 const LocalSgdSettings& settings,
                                                                 parallel::CommunicatorPtr gradient_group) {
  auto local_sgd = std::make_shared<parallel::LocalSgd>(require_prepared(model), state_.groups().gradient_group(),
                                                        local_sgd_steps, settings, std::move(gradient_group));
  prepared_.local_sgds.erase(std::remove_if(prepared_.local_sgds.begin(), prepared_.local_sgds.end(),
                                            [](const auto& run) { return run.expired(); }),
                             prepared_.local_sgds.end());
  prepared_.local_sgds.push_back(local_sgd);
  return local_sgd;
}

std::vector<PreparedObject> Preparation::prepare(const std::vector<PreparedObject>& objects) {
  const size_t models = prepared_.models.size(), optimizers = prepared_.optimizers.size(),
               loaders = prepared_.loaders.size(), schedulers = prepared_.schedulers.size();
  const SequenceSplitting::ChoicePtr sequences = prepared_.sequences->choice();
  std::vector<PreparedObject> prepared(objects.size());
  try {
    // Settings of models may leave batch sizes to the loaders.
    for (size_t i = 0; i < objects.size(); i++) {
      if (objects[i].loader == nullptr) continue;
      DataloaderConfig configuration;
      configuration.put_on_device = objects[i].device_placement;
      prepared[i].loader = prepare_data_loader(*objects[i].loader, configuration);
    }
    for (size_t i = 0; i < objects.size(); i++) {
      const PreparedObject& object = objects[i];
      PrepareModelSettings preparation = object.model_settings;
      if (!preparation.device_placement.value) preparation.device_placement = object.device_placement;
      if (object.model != nullptr) prepared[i].model = prepare_model(object.model, preparation, object.sample_inputs);
      if (object.optimizer != nullptr) prepared[i].optimizer = prepare_optimizer(object.optimizer);
    }
    for (size_t i = 0; i < objects.size(); i++)
      if (objects[i].scheduler != nullptr) prepared[i].scheduler = prepare_scheduler(objects[i].scheduler);
  } catch (...) {
    prepared_.models.resize(models);
    prepared_.optimizers.resize(optimizers);
    prepared_.loaders.resize(loaders);
    prepared_.schedulers.resize(schedulers);
    prepared_.sequences->take(sequences);
    throw;
  }
  return prepared;
}

std::shared_ptr<PreparedParameters> Preparation::register_parameters(const std::function<nn::NamedTensors()>& tensors,
                                                                     double bucket_cap_mb, const FsdpSettings& fsdp) {
  std::shared_ptr<const RegisteredMemory> memory;
  checkpoint::run_on_all_ranks(
      ranks_of(state_, *state_.groups().gradient_group(), /*each_host=*/false), [&]() -> std::string {
        require(prepared_.grad_scaler == nullptr, Status::kUnsupported,
                "the state scales losses for fp16, which the application computes itself, and with it the gradients; "
                "expected mixed_precision 'no' or 'bf16', with parameters of any floating dtype");
        memory = std::make_shared<RegisteredMemory>(tensors(), state_.device());
        for (const ModelEntry& entry : prepared_.models)
          if (entry.memory != nullptr) memory->require_apart_from(*entry.memory);
        return {};
      });
  auto parameters = prepare_parameters(memory->module(), bucket_cap_mb, fsdp, memory->device());
  prepared_.models.back().memory = memory;
  memory->gather(*parameters->model());
  parameters->set_memory(std::move(memory));
  return parameters;
}

}  // namespace accel::accelerator
