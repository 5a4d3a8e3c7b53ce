// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/training_checkpoint.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <unordered_set>

#include "accelerator/checkpoints/fp8_state.hpp"
#include "accelerator/checkpoints/gradient_sums.hpp"
#include "accelerator/checkpoints/placed_state.hpp"
#include "accelerator/checkpoints/rank_state.hpp"
#include "accelerator/checkpoints/tied_copies.hpp"
#include "accelerator/prepared_model.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "accelerator/ranks.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "checkpoint/save_training_state.hpp"
#include "checkpoint/training_state.hpp"
#include "comm/collectives.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "data/prepared_dataloader.hpp"
#include "nn/module_walks.hpp"
#include "os/bus_error_guard.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/device/generator.hpp"
#include "tensor/loading.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using checkpoint::StateKind;

class RegisteredState : public tensor::Stateful {
 public:
  explicit RegisteredState(RegisteredObject object) : object_(std::move(object)) {}
  c10::IValue state_dict() const override { return object_.save(); }
  void load_state_dict(const c10::IValue& state) override { object_.load(state); }

 private:
  RegisteredObject object_;
};

// Additional ranks keep their own stream: how to derive one is known to the application only.
class ApplicationGenerator final : public RegisteredState {
 public:
  using RegisteredState::RegisteredState;
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override {
    if (static_cast<size_t>(rank) < states.size()) return load_state_dict(states[static_cast<size_t>(rank)]);
    log(LogLevel::kWarning, "the checkpoint has no random state of rank ", rank,
        " for a generator of the application, which continues as it is");
  }
};

// Restores the position of a loader unless it was prepared without that.
class LoaderState final : public tensor::Stateful {
 public:
  explicit LoaderState(std::shared_ptr<data::PreparedDataLoader> loader) : loader_(std::move(loader)) {}
  c10::IValue state_dict() const override { return loader_->state_dict(); }
  void load_state_dict(const c10::IValue& state) override {
    if (loader_->sharding().use_stateful_dataloader) loader_->load_state_dict(state);
  }

 private:
  std::shared_ptr<data::PreparedDataLoader> loader_;
};

// The names of the parameters without gradients, and of those that are tied to them.
std::unordered_set<std::string> frozen_tensors(const nn::Module& model, const c10::IValue& state) {
  std::unordered_set<const void*> frozen;
  for (const at::Tensor& parameter : model.parameters())
    if (!parameter.requires_grad()) frozen.insert(parameter.const_data_ptr());
  std::unordered_set<std::string> names;
  for (const auto& member : state.toGenericDict())
    if (member.value().isTensor() && frozen.count(member.value().toTensor().const_data_ptr()) > 0)
      names.insert(member.key().toStringRef());
  return names;
}

void require_unknown(const std::vector<RegisteredObject>& objects, const std::string& name) {
  for (const RegisteredObject& other : objects)
    require(other.name != name, Status::kAlreadyExists, "an object called '", name, "' is registered already");
}

}  // namespace

void TrainingCheckpoints::register_for_checkpointing(RegisteredObject object) {
  if (!object.name.empty()) {
    checkpoint::check_custom_name(object.name);
    require_unknown(objects_, object.name);
  }
  objects_.push_back(std::move(object));
}

void TrainingCheckpoints::register_random_state(RegisteredObject generator) {
  for (const SavedObject& saved : saved_objects())
    require(saved.kind != StateKind::kRandom || saved.name != generator.name, Status::kAlreadyExists,
            "a generator called '", generator.name, "' is registered already");
  require(!generator.name.empty(), Status::kInvalidArgument, "the name of a generator is empty; expected a text");
  generators_.push_back(std::move(generator));
}

int64_t TrainingCheckpoints::add_hook(CheckpointHooks& hooks, CheckpointHook hook) {
  hooks.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

int64_t TrainingCheckpoints::add_save_hook(CheckpointHook hook) { return add_hook(save_hooks_, std::move(hook)); }

int64_t TrainingCheckpoints::add_load_hook(CheckpointHook hook) { return add_hook(load_hooks_, std::move(hook)); }

void TrainingCheckpoints::remove_checkpoint_hook(int64_t id) {
  for (CheckpointHooks* const hooks : {&save_hooks_, &load_hooks_}) {
    const auto found = std::find_if(hooks->begin(), hooks->end(), [id](const auto& hook) { return hook.first == id; });
    if (found == hooks->end()) continue;
    hooks->erase(found);
    return;
  }
  fail(Status::kNotFound, "no hook of checkpoints has the number ", id, "; it may have been removed");
}

checkpoint::StateEntry TrainingCheckpoints::SavedObject::entry() const {
  checkpoint::StateEntry entry{kind, name, {}, {}};
  entry.may_be_missing = may_be_missing;
  entry.is_equal_on_all_ranks = is_equal_on_all_ranks;
  entry.takes_chunks = object->takes_chunks();
  entry.check_chunks = [checked = object](const c10::IValue& state) { checked->check_chunks(state); };
  return entry;
}

// In the order of loading: recipes of fp8 and optimizers first, because they may refuse.
std::vector<TrainingCheckpoints::SavedObject> TrainingCheckpoints::saved_objects() const {
  const auto runs = prepared_.open_local_sgds();
  const bool weights_differ =
      std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run->has_local_steps(); });
  std::vector<SavedObject> objects;
  const auto add = [&](StateKind kind, const std::string& name, std::shared_ptr<tensor::Stateful> object) {
    objects.push_back({kind, name, std::move(object)});
    return &objects.back();
  };
  const std::vector<parallel::ParallelModelPtr> parallel = prepared_.parallel_models();
  const bool are_placed = first_placed(parallel) != nullptr;
  auto fp8 = std::make_shared<Fp8State>(prepared_.models);
  if (!fp8->empty()) add(StateKind::kRankState, "fp8", std::move(fp8))->may_be_missing = true;
  for (const auto& optimizer : prepared_.optimizers)
    add(StateKind::kOptimizer, "", std::make_shared<OptimizerState>(optimizer, parallel))->is_equal_on_all_ranks =
        !weights_differ && !are_placed;
  for (const auto& model : parallel)
    add(StateKind::kModel, "", std::make_shared<ModelState>(model))->is_equal_on_all_ranks =
        !weights_differ && !ModelState(model).takes_chunks() && nn::named_buffers(*model->module()).empty();
  for (const auto& scheduler : prepared_.schedulers) add(StateKind::kScheduler, "", scheduler);
  if (prepared_.grad_scaler != nullptr) add(StateKind::kScaler, "", prepared_.grad_scaler);
  for (const RegisteredObject& object : objects_)
    add(StateKind::kCustom, object.name, std::make_shared<RegisteredState>(object));

  add(StateKind::kRandom, "step", std::make_shared<StepState>(prepared_.windows(*state_.gradient_state())))
      ->may_be_missing = true;
  const c10::Device cpu(c10::kCPU);
  add(StateKind::kRandom, GeneratorState::key(cpu), std::make_shared<GeneratorState>(cpu));
  if (!state_.device().is_cpu() && tensor::has_default_generator(state_.device()))
    // A checkpoint of another kind of device has none of this one.
    add(StateKind::kRandom, GeneratorState::key(state_.device()), std::make_shared<GeneratorState>(state_.device()))
        ->may_be_missing = true;
  for (const RegisteredObject& generator : generators_)
    add(StateKind::kRandom, generator.name, std::make_shared<ApplicationGenerator>(generator))->may_be_missing = true;

  for (const auto& loader : prepared_.loaders) add(StateKind::kDataloader, "", std::make_shared<LoaderState>(loader));
  const auto add_own = [&](const std::string& name, std::shared_ptr<tensor::Stateful> object) {
    add(StateKind::kRankState, name, std::move(object));
  };
  add_own("comm_hooks", std::make_shared<ReductionState>(parallel));
  add_own("accumulation", std::make_shared<AccumulationState>(prepared_.windows(*state_.gradient_state())));
  add_own("local_sgd", std::make_shared<LocalSgdState>(runs,
                                                       std::vector<std::shared_ptr<tensor::Stateful>>(
                                                           prepared_.optimizers.begin(), prepared_.optimizers.end()),
                                                       state_.is_main_process()));
  add_own("buffers", std::make_shared<BufferState>(prepared_.modules(), state_.is_main_process()));
  bool open = !state_.gradient_state()->sync_gradients();
  for (const auto& window : prepared_.windows(*state_.gradient_state())) open = open || !window->complete;
  add_own("gradients", std::make_shared<GradientSums>(parallel, open));
  return objects;
}

// Rank 0 saves what has no placement for all.
void TrainingCheckpoints::require_known_parts() const {
  const int64_t parts = state_.groups().mesh()->size("pipeline,tensor");
  require(parts == 1 || prepared_.models.empty() || !prepared_.are_split_by_programs(), Status::kUnsupported,
          "the ranks have ", parts, " different parts of a model (", state_.groups().mesh()->describe(),
          "), and checkpoints of this version hold one copy; expected ranks with equal parameters, or accel_save() of "
          "each rank's own state_dict");
}

// With whole tensors on the ranks that may write them, or chunks on those that are the first to have them.
c10::IValue TrainingCheckpoints::saved_state(const tensor::Stateful& object, StateKind kind,
                                             const std::string& folder) const {
  if (kind != StateKind::kModel && kind != StateKind::kOptimizer) return object.state_dict();
  const std::vector<parallel::ParallelModelPtr> models = prepared_.parallel_models();
  if (first_placed(models) == nullptr) return object.state_dict();
  const auto make_state = [&object] { return object.state_dict(); };
  const c10::IValue state =
      kind == StateKind::kModel ? make_state() : with_equal_parts(make_state, ranks_of(state_, false));
  const bool whole = state_dict_type(models) == StateDictType::kFullStateDict;
  return form_to_save(state, *prepared_.placed, whole, state_.is_local_main_process(), folder);
}

checkpoint::TrainingState TrainingCheckpoints::collect_state(const std::string& folder) const {
  require_equal_copies(prepared_.parallel_models(), ranks_of(state_, false));
  checkpoint::TrainingState state;
  std::vector<size_t> places;  // of the models
  for (const SavedObject& saved : saved_objects()) {
    state.push_back(saved.entry());
    state.back().state = saved_state(*saved.object, saved.kind, folder);
    if (saved.kind != StateKind::kModel) continue;
    state.back().frozen = frozen_tensors(*prepared_.modules()[places.size()], state.back().state);
    places.push_back(state.size() - 1);
  }
  if (save_hooks_.empty()) return state;
  std::vector<c10::IValue> models;
  for (const size_t place : places) models.push_back(stored_tensors(state[place].state));
  for (const auto& [id, hook] : save_hooks_) hook(models, folder);
  require(models.size() == places.size(), Status::kInvalidArgument, "a hook returned ", models.size(),
          " models; expected ", places.size(), ", with NONE for those that are not saved");
  for (size_t i = 0; i < places.size(); i++) {
    checkpoint::StateEntry& entry = state[places[i]];
    entry.state = with_stored_tensors(entry.state, models[i]);
    entry.is_left_out = models[i].isNone();
  }
  return state;
}

void TrainingCheckpoints::save_state(const std::string& folder, const checkpoint::SaveOptions& options) {
  require_known_parts();
  checkpoint::save_training_state(
      folder, [this](const std::string& temporary) { return collect_state(temporary); }, options,
      ranks_of(state_, options.save_on_each_node));
  log(LogLevel::kInfo, "the training state is saved in '", folder, "'");
}

// Everything is read and checked before the first object changes; checks of an object itself run before it changes.
std::optional<int64_t> TrainingCheckpoints::load_state(const std::string& folder,
                                                       const checkpoint::LoadOptions& options) {
  require_known_parts();
  const BusErrorGuard guard;  // objects copy from mapped files
  const checkpoint::Ranks ranks = ranks_of(state_, options.save_on_each_node);
  const std::vector<SavedObject> objects = saved_objects();
  checkpoint::TrainingState like;
  checkpoint::run_on_all_ranks(ranks, [&]() -> std::string {
    size_t num_optimizers = 0;
    for (const SavedObject& object : objects) {
      like.push_back(object.entry());
      if (object.kind == StateKind::kModel) like.back().state = object.object->state_dict();
      if (object.kind == StateKind::kOptimizer)
        like.back().groups = named_groups(*prepared_.optimizers[num_optimizers++], prepared_.modules());
    }
    leave_out_models_of_hooks(like, folder);
    return {};
  });
  checkpoint::LoadedState loaded = checkpoint::load_training_state(folder, like, options, ranks);
  for (size_t i = 0; i < objects.size(); i++)
    if (!loaded.entries[i].of_ranks.empty()) objects[i].object->check_states_of_ranks(loaded.entries[i].of_ranks);
  const tensor::LoadingScope scope;
  for (size_t i = 0; i < objects.size(); i++) {
    checkpoint::StateEntry& entry = loaded.entries[i];
    if (!entry.of_ranks.empty())
      objects[i].object->load_states_of_ranks(entry.of_ranks, state_.process_index());
    else if (entry.is_loaded)
      objects[i].object->load_state_dict(entry.state);
    entry = {};  // its memory, before the next one is read
  }
  for (const ModelEntry& entry : prepared_.models)
    if (entry.memory != nullptr) entry.memory->gather(*entry.parallel());
  guard.check();
  log(LogLevel::kInfo, "the training state is loaded from '", folder, "'");
  return loaded.iteration;
}

void TrainingCheckpoints::leave_out_models_of_hooks(checkpoint::TrainingState& like, const std::string& folder) const {
  if (load_hooks_.empty()) return;
  std::vector<c10::IValue> models;
  for (const checkpoint::StateEntry& entry : like)
    if (entry.kind == StateKind::kModel) models.emplace_back(static_cast<int64_t>(models.size()));
  const size_t expected = models.size();
  for (const auto& [id, hook] : load_hooks_) hook(models, folder);
  require(models.size() == expected, Status::kInvalidArgument, "a hook returned ", models.size(), " models; expected ",
          expected, ", with NONE for those that are not loaded");
  size_t next = 0;
  for (checkpoint::StateEntry& entry : like)
    if (entry.kind == StateKind::kModel) entry.is_left_out = models[next++].isNone();
}

}  // namespace accel::accelerator
