#include "accelerator/accelerator.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "accelerator/checkpoints/rank_state.hpp"
#include "accelerator/prepared_scheduler.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/collectives.hpp"
#include "config/precedence.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "nn/weight_store.hpp"
#include "state/random.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/tree.hpp"
#include "track/throughput.hpp"
#include "track/trackers.hpp"

namespace accel::accelerator {
namespace {

void require_apart(const nn::Module& module, const parallel::PlacedParameters& placed) {
  for (const auto& [name, parameter] : module.named_parameters())
    require(placed.find(parameter) == nullptr, Status::kInvalidState, "parameter '", name,
            "' belongs to a sharded model that is prepared already, and this rank has a part of it; expected "
            "parameters of this model alone");
}

}  // namespace

Accelerator::Accelerator(const StateSettings& given)
    : state_(given),
      trackers_(std::make_shared<track::Trackers>()),
      throughput_(std::make_shared<track::Throughput>()) {
  state::check_rng_types(state_.settings().rng_types, state_.device(), /*has_generator=*/false);
  make_grad_scaler({});
}

Accelerator::Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group)
    : state_(parent.state_, std::move(group)),
      autocast_(parent.autocast_),
      trackers_(std::make_shared<track::Trackers>()),
      throughput_(std::make_shared<track::Throughput>()) {
  make_grad_scaler(parent.own_grad_scaler_);
}

Accelerator::Accelerator(const Accelerator& parent, const StateSettings& given)
    : state_(parent.state_, given),
      trackers_(std::make_shared<track::Trackers>()),
      throughput_(std::make_shared<track::Throughput>()) {
  state::check_rng_types(state_.settings().rng_types, state_.device(), /*has_generator=*/false);
  make_grad_scaler({});
}

void Accelerator::require_nothing_prepared(const char* what) const {
  require(prepared_.models.empty() && prepared_.optimizers.empty(), Status::kInvalidState, what,
          " cannot change after ", prepared_.models.empty() ? "an optimizer" : "a model",
          " was prepared; set it before, or after accel_free_memory()");
}

void Accelerator::make_grad_scaler(const std::optional<GradScalerSettings>& given) {
  const GradScalerSettings settings = given.value_or(GradScalerSettings());
  check_settings(settings);
  own_grad_scaler_ = given;
  prepared_.grad_scaler.reset();
  if (settings.enabled.value_or(state_.mixed_precision() == Precision::kFp16))
    prepared_.grad_scaler = std::make_shared<precision::GradScaler>(settings);
}

void Accelerator::set_grad_scaler(const GradScalerSettings& settings) {
  require_nothing_prepared("the gradient scaler");
  make_grad_scaler(settings);
}

void Accelerator::set_autocast(const AutocastSettings& settings) {
  require_nothing_prepared("autocast");
  autocast_ = settings;
}

// Ranks along these axes would train copies of one model and compute the same.
void Accelerator::require_split(const nn::Module& module, const PrepareModelSettings& preparation) const {
  const int64_t parts = state_.mesh()->size("pipeline,context,tensor");
  require(
      parts == 1 || preparation.split_by_program || preparation.evaluation_mode ||
          prepared_.placed->tell_parts(module, "pipeline,context,tensor"),
      Status::kUnsupported, "the mesh has axes that split a model or its sequences over ", parts, " ranks (",
      state_.mesh()->describe(),
      "), and nothing splits this one; expected axes replicate and shard only, or split_by_program of a program whose "
      "forward splits it");
}

// The norm counts each parameter once, and which of a rank's are parts and which are copies only the program knows.
void Accelerator::require_known_norm(const nn::Module& module) const {
  require(prepared_.placed->tell_parts(module, prepared_.placed->axes_of_models()), Status::kUnsupported,
          "the ranks have different parts of the model (", state_.mesh()->describe(),
          "), so that a rank does not know the norm of all gradients; expected clipping by value, "
          "or a norm that the program computes over the groups of the mesh");
}

// A mesh with a shard axis says who shares a copy. Without one all ranks do.
parallel::ModelRanks Accelerator::model_ranks(const FsdpSettings& settings) const {
  comm::Mesh& mesh = *state_.mesh();
  if (mesh.size("shard") > 1) {
    const std::string axes = "shard,context";
    return {state_.gradient_group(), mesh.group(axes), mesh.group("replicate"), axes};
  }
  const bool is_hybrid = settings.sharding_strategy == ShardingStrategy::kHybridShard ||
                         settings.sharding_strategy == ShardingStrategy::kHybridShardZero2;
  const int64_t on_host = state_.local_num_processes();
  require(
      !is_hybrid || on_host == state_.num_processes(), Status::kInvalidArgument,
      "sharding_strategy is HYBRID_SHARD and data_parallel_shard_size is 1; expected the number of ranks that share a "
      "copy, such as the ",
      on_host, " of this host");
  return {state_.gradient_group(), state_.gradient_group(), nullptr, "replicate,shard,context"};
}

ShardingChoice Accelerator::choose_sharding(const PrepareModelSettings& preparation) const {
  ShardingJob job;
  job.mixed_precision = state_.mixed_precision();
  job.accumulation = state_.gradient_state()->settings();
  job.data_parallel_size = state_.data_parallel()->size();
  job.has_shards = state_.mesh()->size("shard") > 1;
  job.reports_keys = prepared_.models.empty();
  for (const auto& loader : prepared_.loaders)
    if (const auto rows = loader->total_batch_size()) job.batch_sizes.push_back(*rows / job.data_parallel_size);
  return accelerator::choose_sharding(preparation, job);
}

nn::ModulePtr Accelerator::prepare_model(nn::ModulePtr module, const PrepareModelSettings& preparation) {
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the model is prepared already; prepare the model inside it");
  require_apart(*module, *prepared_.placed);
  const bool is_dispatched = module->weight_store() != nullptr && module->weight_store()->is_spread();
  require(!is_dispatched || state_.num_processes() == 1 || preparation.bypass_device_map, Status::kInvalidArgument,
          "the model is dispatched over several devices, and there are ", state_.num_processes(),
          " processes, each of which would train all of it; expected a model on one device, or bypass_device_map");
  require_split(*module, preparation);
  PrepareModelSettings settings = preparation;
  ShardingChoice sharding = choose_sharding(preparation);
  if (sharding.gradient_clipping > 0) require_known_norm(*module);
  if (sharding.loss_scale && prepared_.grad_scaler != nullptr && prepared_.models.empty())  // the first model's counts
    follow_loss_scale(*sharding.loss_scale, *prepared_.grad_scaler, own_grad_scaler_.has_value());
  settings.fsdp = std::move(sharding.settings);
  const bool may_lack_memory = *settings.fsdp.enabled && settings.fsdp.cpu_ram_efficient_loading;
  if (preparation.device_placement.value_or(state_.settings().device_placement) && !may_lack_memory &&
      module->weight_store() == nullptr)
    module->to(std::nullopt, state_.device());
  const ForwardPrecision precision{state_.mixed_precision(), state_.device().type(), autocast_,
                                   state_.settings().keep_output_dtype};
  auto prepared = std::make_shared<PreparedModel>(
      parallel::parallelize(module, model_ranks(settings.fsdp), settings, state_.device()), precision,
      state_.compute_policy(), state_.step_times());
  prepared_.placed->add(prepared->parallel());
  if (sharding.gradient_clipping > 0) step_clipping_->add(prepared->parallel(), sharding.gradient_clipping);
  state_.gradient_state()->set_settings(sharding.accumulation);
  prepared_.models.push_back(
      {std::move(module), prepared, prepared->accumulation(), nullptr, nullptr, sharding.deepspeed});
  return prepared;
}

std::shared_ptr<optim::Optimizer> Accelerator::prepare_optimizer(std::shared_ptr<optim::Optimizer> optimizer) {
  require(std::dynamic_pointer_cast<PreparedOptimizer>(optimizer) == nullptr, Status::kInvalidState,
          "the optimizer is prepared already; prepare the optimizer inside it");
  auto prepared = std::make_shared<PreparedOptimizer>(std::move(optimizer), state_.gradient_state(),
                                                      prepared_.grad_scaler, state_.step_times(), prepared_.placed);
  prepared->set_step_clipping(step_clipping_);
  prepared->set_index(prepared_.optimizers.size());
  prepared_.optimizers.push_back(prepared);
  return prepared;
}

int64_t Accelerator::steps_per_update() const {
  const auto& settings = state_.settings();
  const bool per_batch = settings.scheduler_steps == SchedulerSteps::kPerBatch;
  return per_batch && !settings.split_batches ? state_.data_parallel()->size() : 1;
}

std::shared_ptr<optim::Scheduler> Accelerator::prepare_scheduler(std::shared_ptr<optim::Scheduler> scheduler) {
  require(std::dynamic_pointer_cast<PreparedScheduler>(scheduler) == nullptr, Status::kInvalidState,
          "the scheduler is prepared already; prepare the scheduler inside it");
  SchedulerStepping stepping;
  const auto& settings = state_.settings();
  stepping.step_with_optimizer = settings.step_scheduler_with_optimizer;
  const bool per_batch = settings.scheduler_steps == SchedulerSteps::kPerBatch;
  stepping.steps_per_update = steps_per_update();
  stepping.stop_at_end = !per_batch || !settings.split_batches;  // the reference lets shared batches run into the end
  // Its own optimizer if that is prepared; otherwise all.
  std::vector<std::shared_ptr<optim::Optimizer>> waited_for(prepared_.optimizers.begin(), prepared_.optimizers.end());
  for (const auto& optimizer : prepared_.optimizers)
    if (scheduler->optimizer() == optimizer || scheduler->optimizer() == optimizer->inner()) waited_for = {optimizer};
  auto prepared = std::make_shared<PreparedScheduler>(std::move(scheduler), std::move(waited_for),
                                                      state_.gradient_state(), stepping);
  prepared_.schedulers.push_back(prepared);
  return prepared;
}

std::shared_ptr<data::PreparedDataLoader> Accelerator::prepare_data_loader(const data::Loader& loader,
                                                                           const DataloaderConfig& configuration) {
  const auto* const plain = dynamic_cast<const data::DataLoader*>(&loader);
  require(plain != nullptr, Status::kInvalidState,
          "the loader is prepared already; prepare the loader that it was made from");
  data::ShardOptions sharding;
  sharding.num_processes = state_.data_parallel()->size();
  sharding.process_index = state_.data_parallel()->rank();
  sharding.split_batches = configuration.split_batches.value_or(state_.settings().split_batches);
  sharding.even_batches = configuration.even_batches;
  if (configuration.put_on_device.value_or(state_.settings().device_placement)) sharding.device = state_.device();
  sharding.non_blocking = configuration.non_blocking;
  sharding.dispatch_batches = configuration.dispatch_batches;
  sharding.seed = configuration.data_seed;
  sharding.draw_seed = !configuration.use_seedable_sampler;
  sharding.resumes = configuration.use_stateful_dataloader;
  sharding.communicator = state_.communicator();
  sharding.process_indices = state_.data_parallel_indices();
  sharding.gradient_state = state_.gradient_state();
  sharding.step_times = state_.step_times();
  const std::string rng_types = state_.settings().rng_types;
  if (!rng_types.empty())
    sharding.at_epoch_begin = [communicator = state_.communicator(), device = state_.device(), rng_types] {
      state::synchronize_rng_states(*communicator, device, rng_types, at::Generator());
    };
  auto prepared = std::make_shared<data::PreparedDataLoader>(*plain, sharding);
  if (sharding.non_blocking && sharding.device && !loader.input().options.pin_memory)
    log(LogLevel::kWarning,
        "non_blocking is 1 for a loader whose pin_memory is 0: copies to a GPU from memory that is not page-locked "
        "block "
        "all the same; set pin_memory to 1, or non_blocking to 0");
  prepared_.loaders.push_back(prepared);
  return prepared;
}

std::shared_ptr<PreparedParameters> Accelerator::prepare_parameters(nn::ModulePtr module, double bucket_cap_mb,
                                                                    const FsdpSettings& fsdp,
                                                                    std::optional<c10::Device> given) {
  const c10::Device device = given.value_or(state_.device());
  require(unwrap_model(module) == module, Status::kInvalidState,
          "the module is prepared already; expected one whose gradients the program computes");
  require_apart(*module, *prepared_.placed);
  PrepareModelSettings preparation;
  preparation.fsdp = fsdp;
  const FsdpSettings settings = choose_sharding(preparation).settings;
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
  return std::make_shared<PreparedParameters>(parallel, std::move(trained), state_.gradient_group(),
                                              state_.gradient_state(), std::move(window));
}

std::shared_ptr<parallel::LocalSgd> Accelerator::begin_local_sgd(const nn::ModulePtr& model, int64_t local_sgd_steps,
                                                                 const LocalSgdSettings& settings,
                                                                 parallel::CommunicatorPtr gradient_group) {
  auto local_sgd = std::make_shared<parallel::LocalSgd>(require_prepared(model), state_.gradient_group(),
                                                        local_sgd_steps, settings, std::move(gradient_group));
  prepared_.local_sgds.erase(std::remove_if(prepared_.local_sgds.begin(), prepared_.local_sgds.end(),
                                            [](const auto& run) { return run.expired(); }),
                             prepared_.local_sgds.end());
  prepared_.local_sgds.push_back(local_sgd);
  return local_sgd;
}

std::vector<PreparedObject> Accelerator::prepare(const std::vector<PreparedObject>& objects) {
  const size_t models = prepared_.models.size(), optimizers = prepared_.optimizers.size(),
               loaders = prepared_.loaders.size(), schedulers = prepared_.schedulers.size();
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
      if (object.model != nullptr) prepared[i].model = prepare_model(object.model, preparation);
      if (object.optimizer != nullptr) prepared[i].optimizer = prepare_optimizer(object.optimizer);
    }
    for (size_t i = 0; i < objects.size(); i++)
      if (objects[i].scheduler != nullptr) prepared[i].scheduler = prepare_scheduler(objects[i].scheduler);
  } catch (...) {
    prepared_.models.resize(models);
    prepared_.optimizers.resize(optimizers);
    prepared_.loaders.resize(loaders);
    prepared_.schedulers.resize(schedulers);
    throw;
  }
  return prepared;
}

state::LoaderProgress Accelerator::batch_in_hand() const {
  const auto progress = state_.gradient_state()->active();
  return progress != nullptr ? *progress : state::LoaderProgress();
}

void Accelerator::set_seed(int64_t seed, bool device_specific) {
  require(seed >= 0, Status::kInvalidArgument, "seed is ", seed, "; expected 0 or more");
  const int64_t own = seed + (device_specific ? state_.random_stream() : 0);
  state::set_seed_of_default_generators(static_cast<uint64_t>(own));
  for (const auto& callback : seed_callbacks_) callback(own);
}

// Afterwards this rank is as if it had taken the steps for which it had no inputs.
void Accelerator::broadcast_training_state(int rank) {
  comm::Communicator& ranks = *state_.gradient_group();
  std::vector<std::shared_ptr<tensor::Stateful>> followers;
  for (const auto& optimizer : prepared_.optimizers)
    if (optimizer->updates_parts())
      optimizer->share_settings(ranks, rank);
    else
      followers.push_back(optimizer);
  followers.insert(followers.end(), prepared_.schedulers.begin(), prepared_.schedulers.end());
  followers.push_back(std::make_shared<AccumulationState>(prepared_.windows(*state_.gradient_state())));
  if (prepared_.grad_scaler != nullptr) followers.push_back(prepared_.grad_scaler);
  auto states = tree::new_list();
  for (const auto& follower : followers) states.push_back(follower->state_dict());
  const c10::IValue received = comm::broadcast_object_list(ranks, states, rank);
  if (rank == ranks.rank()) return;
  for (size_t i = 0; i < followers.size(); i++) followers[i]->load_state_dict(received.toListRef()[i]);
}

void Accelerator::free_memory() {
  prepared_.models.clear();
  prepared_.optimizers.clear();
  prepared_.schedulers.clear();
  prepared_.loaders.clear();
  prepared_.local_sgds.clear();
  state_.gradient_state()->restart();
  release_cached_memory();
}

void Accelerator::release_cached_memory() {
  projects_.release_memory();
  kernels::empty_cache();
  tensor::empty_cache(state_.device().type());
}

void Accelerator::end_training() {
  projects_.finish_background_save(/*refuse=*/false);
  trackers_->finish();
  state_.communicator()->barrier();
  state_.communicator()->shutdown();
}

}  // namespace accel::accelerator
