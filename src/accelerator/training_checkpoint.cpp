// Saving and loading of everything that is prepared.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "accelerator/accelerator.hpp"
#include "accelerator/rank_state.hpp"
#include "base/error.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_state.hpp"
#include "comm/collectives.hpp"
#include "state/random.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using checkpoint::StateKind;

checkpoint::Ranks ranks_of(comm::Communicator& communicator) {
  checkpoint::Ranks ranks;
  ranks.rank = communicator.rank();
  ranks.size = communicator.size();
  if (ranks.size == 1) return ranks;
  ranks.all_gather = [&communicator](const std::string& text) {
    const c10::IValue gathered = comm::gather_object(communicator, text);  // a range-for would not keep it alive
    std::vector<std::string> texts;
    for (const c10::IValue& item : gathered.toListRef()) texts.push_back(item.toStringRef());
    return texts;
  };
  return ranks;
}

class ModelState final : public tensor::Stateful {
 public:
  explicit ModelState(nn::ModulePtr model) : model_(std::move(model)) {}
  c10::IValue state_dict() const override { return checkpoint::model_state(model_->state_dict()); }
  void load_state_dict(const c10::IValue& state) override { model_->load_state_dict(checkpoint::model_tensors(state)); }

 private:
  nn::ModulePtr model_;
};

class RegisteredState final : public tensor::Stateful {
 public:
  explicit RegisteredState(RegisteredObject object) : object_(std::move(object)) {}
  c10::IValue state_dict() const override { return object_.save(); }
  void load_state_dict(const c10::IValue& state) override { object_.load(state); }

 private:
  RegisteredObject object_;
};

// Restores the position of a loader unless it was prepared without that.
class LoaderState final : public tensor::Stateful {
 public:
  explicit LoaderState(std::shared_ptr<data::PreparedDataLoader> loader) : loader_(std::move(loader)) {}
  c10::IValue state_dict() const override { return loader_->state_dict(); }
  void load_state_dict(const c10::IValue& state) override {
    if (loader_->sharding().resumes) loader_->load_state_dict(state);
  }

 private:
  std::shared_ptr<data::PreparedDataLoader> loader_;
};

}  // namespace

state::AccumulationWindows Accelerator::windows() const {
  state::AccumulationWindows windows = state_.gradient_state()->own();
  for (const ModelEntry& entry : models_) windows.push_back(entry.accumulation);
  return windows;
}

// In the order of loading: optimizers first, because they may refuse.
std::vector<Accelerator::SavedObject> Accelerator::saved_objects() const {
  std::vector<SavedObject> objects;
  for (const auto& optimizer : optimizers_) objects.push_back({StateKind::kOptimizer, "", optimizer});
  for (const auto& model : models()) objects.push_back({StateKind::kModel, "", std::make_shared<ModelState>(model)});
  for (const auto& scheduler : schedulers_) objects.push_back({StateKind::kScheduler, "", scheduler});
  for (const auto& loader : loaders_)
    objects.push_back({StateKind::kDataloader, "", std::make_shared<LoaderState>(loader)});
  for (const RegisteredObject& object : objects_)
    objects.push_back({StateKind::kCustom, object.name, std::make_shared<RegisteredState>(object)});
  const auto add = [&](const std::string& name, std::shared_ptr<tensor::Stateful> object) {
    objects.push_back({StateKind::kRankState, name, std::move(object)});
  };
  add("cpu", std::make_shared<GeneratorState>(c10::Device(c10::kCPU)));
  if (!state_.device().is_cpu() && state::has_default_generator(state_.device())) {
    // By the kind of the device: a checkpoint of another kind has none of this one.
    add(c10::DeviceTypeName(state_.device().type(), /*lower_case=*/true),
        std::make_shared<GeneratorState>(state_.device()));
    objects.back().may_be_missing = true;
  }
  if (grad_scaler_ != nullptr) add("scaler", grad_scaler_);
  std::vector<parallel::ParallelModelPtr> parallel;
  for (const ModelEntry& entry : models_) parallel.push_back(entry.parallel());
  add("comm_hooks", std::make_shared<ReductionState>(std::move(parallel)));
  add("accumulation", std::make_shared<AccumulationState>(windows()));
  add("local_sgd",
      std::make_shared<LocalSgdState>(
          local_sgds(), std::vector<std::shared_ptr<tensor::Stateful>>(optimizers_.begin(), optimizers_.end()),
          state_.is_main_process()));
  add("buffers", std::make_shared<BufferState>(models(), state_.is_main_process()));
  bool open = !sync_gradients();
  for (const auto& window : windows()) open = open || !window->complete;
  add("gradients", std::make_shared<GradientSums>(models(), open));
  return objects;
}

// As if this rank had taken the steps for which it had no inputs.
void Accelerator::broadcast_training_state(int rank) {
  std::vector<std::shared_ptr<tensor::Stateful>> followers(optimizers_.begin(), optimizers_.end());
  followers.insert(followers.end(), schedulers_.begin(), schedulers_.end());
  followers.push_back(std::make_shared<AccumulationState>(windows()));
  if (grad_scaler_ != nullptr) followers.push_back(grad_scaler_);
  auto states = tree::new_list();
  for (const auto& follower : followers) states.push_back(follower->state_dict());
  comm::Communicator& ranks = *state_.gradient_group();
  const c10::IValue received = comm::broadcast_object_list(ranks, states, rank);
  if (rank == ranks.rank()) return;
  for (size_t i = 0; i < followers.size(); i++) followers[i]->load_state_dict(received.toListRef()[i]);
}

// Rank 0 saves models and optimizers for all.
void Accelerator::require_copies() const {
  const int64_t parts = state_.mesh()->size("pipeline,tensor");
  require(parts == 1 || models_.empty(), Status::kUnsupported, "the ranks have ", parts,
          " different parts of a model (", state_.mesh()->describe(),
          "), and checkpoints of this version hold one copy; expected ranks with equal parameters, or accel_save() of "
          "each rank's own state_dict");
}

void Accelerator::save_state(const std::string& folder) {
  require_copies();
  const auto collect = [this] {
    checkpoint::TrainingState state;
    for (const SavedObject& saved : saved_objects())
      state.push_back({saved.kind, saved.name, saved.object->state_dict(), {}});
    return state;
  };
  checkpoint::save_training_state(folder, collect, ranks_of(*state_.communicator()));
}

// Everything is read and checked before the first object changes; checks of an object itself run before it changes.
void Accelerator::load_state(const std::string& folder) {
  require_copies();
  const std::vector<SavedObject> objects = saved_objects();
  checkpoint::TrainingState like;
  for (const SavedObject& object : objects) {
    const bool has_shapes = object.kind == StateKind::kModel;
    like.push_back({object.kind,
                    object.name,
                    has_shapes ? object.object->state_dict() : c10::IValue(),
                    {},
                    object.may_be_missing});
  }
  const checkpoint::TrainingState state =
      checkpoint::load_training_state(folder, like, ranks_of(*state_.communicator()));
  for (size_t i = 0; i < objects.size(); i++)
    if (!state[i].of_ranks.empty()) objects[i].object->check_states_of_ranks(state[i].of_ranks);
  for (size_t i = 0; i < objects.size(); i++) {
    if (state[i].of_ranks.empty())
      objects[i].object->load_state_dict(state[i].state);
    else
      objects[i].object->load_states_of_ranks(state[i].of_ranks, state_.process_index());
  }
}

void Accelerator::save_model(const nn::Module& module, const std::string& folder) {
  require_copies();
  if (!state_.is_main_process()) return;
  const bool made = mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST;
  require(made, Status::kIo, "folder ", folder, " cannot be made: ", std::strerror(errno));
  const auto contents = checkpoint::drop_tied(module.state_dict(), {{"format", "pt"}});
  checkpoint::save_safetensors(folder + "/model.safetensors", contents.tensors, contents.metadata);
}

}  // namespace accel::accelerator
