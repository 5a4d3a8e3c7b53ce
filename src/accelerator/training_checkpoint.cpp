// Saving and loading of everything that is prepared.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros_like.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <unordered_set>

#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_state.hpp"
#include "comm/collectives.hpp"
#include "state/random.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

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

void set_default_generator(c10::Device device, const at::Tensor& saved) {
  at::Generator generator = state::default_generator(device);
  state::set_generator_state(generator, saved);
}

const c10::IValue& member(const c10::impl::GenericDict& map, const char* key, c10::IValue& storage) {
  const auto found = map.find(key);
  require(found != map.end(), Status::kCorrupt, "the saved random states lack '", key, "'");
  return storage = found->value();
}

// Where a group of micro-batches stands.
c10::IValue save_group(const state::AccumulationGroup& group) {
  auto saved = tree::new_map();
  saved.insert("micro_batch", group.micro_batch);
  saved.insert("length", group.length);
  saved.insert("complete", group.complete);
  saved.insert("weight", group.weight);
  saved.insert("items", group.items);
  return saved;
}

state::AccumulationGroup load_group(const c10::IValue& saved) {
  require(saved.isGenericDict(), Status::kCorrupt, "the saved accumulation of a model is no map");
  const auto map = saved.toGenericDict();
  c10::IValue value;
  state::AccumulationGroup group;
  group.micro_batch = member(map, "micro_batch", value).toInt();
  group.length = member(map, "length", value).toInt();
  group.complete = member(map, "complete", value).toBool();
  group.weight = member(map, "weight", value).toDouble();
  group.items = member(map, "items", value).toInt();
  return group;
}

// What groups of micro-batches have summed up so far.
c10::IValue open_gradients(const std::vector<nn::ModulePtr>& models) {
  auto gradients = tree::new_list();
  for (const nn::ModulePtr& model : models)
    for (const at::Tensor& parameter : model->parameters())
      gradients.push_back(parameter.grad().defined() ? c10::IValue(parameter.grad()) : c10::IValue());
  return gradients;
}

// In place, since gradients may be views of communication buckets. What was summed up before the load is forgotten.
void load_open_gradients(const std::vector<nn::ModulePtr>& models, const c10::IValue& saved) {
  const at::NoGradGuard no_grad;
  require(saved.isList(), Status::kCorrupt, "the saved gradients are no list");
  const auto gradients = saved.toListRef();
  size_t next = 0;
  for (const nn::ModulePtr& model : models)
    for (const at::Tensor& parameter : model->parameters()) {
      const c10::IValue gradient = next < gradients.size() ? gradients[next] : c10::IValue();
      next++;
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
      if (!gradient.isTensor()) continue;
      require(gradient.toTensor().sizes() == parameter.sizes(), Status::kShapeMismatch, "a saved gradient has shape ",
              gradient.toTensor().sizes(), " and its parameter ", parameter.sizes());
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      parameter.mutable_grad().copy_(gradient.toTensor());
    }
}

// Those that the files of models have as well.
nn::NamedTensors saved_buffers(const nn::Module& model) {
  std::unordered_set<std::string> saved;
  for (const auto& entry : model.state_dict()) saved.insert(entry.first);
  nn::NamedTensors buffers = model.named_buffers();
  const auto is_left_out = [&](const nn::NamedTensor& buffer) { return saved.count(buffer.first) == 0; };
  buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_left_out), buffers.end());
  return buffers;
}

// Rank 0's are in the files of the models. Those of another rank differ where it has not heard of rank 0's since.
c10::IValue own_buffers(const std::vector<nn::ModulePtr>& models) {
  auto of_all = tree::new_list();
  for (const nn::ModulePtr& model : models) {
    auto buffers = tree::new_map();
    for (const auto& [name, buffer] : saved_buffers(*model)) buffers.insert(name, buffer);
    of_all.push_back(buffers);
  }
  return of_all;
}

void load_own_buffers(const std::vector<nn::ModulePtr>& models, const c10::IValue& saved) {
  const at::NoGradGuard no_grad;
  require(saved.isList() && saved.toListRef().size() == models.size(), Status::kCorrupt,
          "the saved buffers are of another number of models");
  for (size_t i = 0; i < models.size(); i++) {
    require(saved.toListRef()[i].isGenericDict(), Status::kCorrupt, "the saved buffers of a model are no map");
    const auto buffers = saved.toListRef()[i].toGenericDict();
    for (const auto& [name, buffer] : saved_buffers(*models[i])) {
      const auto found = buffers.find(name);
      require(found != buffers.end() && found->value().isTensor(), Status::kCorrupt, "the saved buffers lack '", name,
              "'");
      require(found->value().toTensor().sizes() == buffer.sizes(), Status::kShapeMismatch, "the saved buffer '", name,
              "' has shape ", found->value().toTensor().sizes(), "; that of the model has ", buffer.sizes());
      buffer.copy_(found->value().toTensor());
    }
  }
}

// What each of some ranks has to bring in for the mean over them to be that of the ranks that saved: the mean.
c10::IValue mean_gradients(const std::vector<c10::IValue>& of_all) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  for (const c10::IValue& states : of_all) {
    require(states.isGenericDict(), Status::kCorrupt, "the saved random states are no map");
    c10::IValue value;
    const c10::IValue gradients = member(states.toGenericDict(), "gradients", value);
    require(gradients.isList(), Status::kCorrupt, "the saved gradients are no list");
    const auto list = gradients.toListRef();
    if (sums.size() < list.size()) sums.resize(list.size());
    for (size_t i = 0; i < list.size(); i++) {
      if (!list[i].isTensor()) continue;
      sums[i] = sums[i].defined() ? sums[i] + list[i].toTensor() : list[i].toTensor();
    }
  }
  auto means = tree::new_list();
  for (const at::Tensor& sum : sums)
    means.push_back(sum.defined() ? c10::IValue(sum / static_cast<double>(of_all.size())) : c10::IValue());
  return means;
}

// Counts of items cannot be shared out between other ranks.
void check_open_groups(const c10::IValue& random_states, size_t saved_by) {
  require(random_states.isGenericDict(), Status::kCorrupt, "the saved random states are no map");
  c10::IValue value;
  const c10::IValue groups = member(random_states.toGenericDict(), "accumulation", value);
  require(groups.isList(), Status::kCorrupt, "the saved accumulation is no list");
  for (const c10::IValue& saved : groups.toListRef()) {
    const state::AccumulationGroup group = load_group(saved);
    require(
        group.complete || group.items < 0, Status::kUnsupported, "the state was saved by ", saved_by,
        " ranks in the middle of a group whose items are counted; expected as many ranks, or a state behind a step");
  }
}

// A rank that did not save has the numbers of one that did so far; from here on its own.
void diverge(at::Generator generator, int64_t rank) {
  generator.set_current_seed(generator.current_seed() + static_cast<uint64_t>(rank));
}

}  // namespace

state::AccumulationGroups Accelerator::groups() const {
  state::AccumulationGroups groups = state_.gradient_state()->own();
  for (const ModelEntry& entry : models_) groups.push_back(entry.accumulation);
  return groups;
}

// Generators, the loss scale, what hooks remember, buffers, and where the accumulation stands: what a rank needs
// besides what all have.
c10::IValue Accelerator::random_states() const {
  auto states = tree::new_map();
  states.insert("cpu", state::generator_state(state::default_generator(c10::Device(c10::kCPU))));
  if (!state_.device().is_cpu())
    states.insert("device", state::generator_state(state::default_generator(state_.device())));
  if (grad_scaler_ != nullptr) states.insert("scaler", grad_scaler_->state_dict());
  auto accumulation = tree::new_list();
  bool open = !sync_gradients();
  for (const auto& group : groups()) {
    accumulation.push_back(save_group(*group));
    open = open || !group->complete;
  }
  states.insert("accumulation", accumulation);
  auto hooks = tree::new_list();
  for (const ModelEntry& entry : models_) hooks.push_back(entry.parallel()->reduction_state());
  states.insert("comm_hooks", hooks);
  if (!state_.is_main_process()) states.insert("buffers", own_buffers(models()));
  states.insert("gradients", open ? open_gradients(models()) : tree::new_list());
  return states;
}

void Accelerator::load_random_states(const c10::IValue& saved, const std::vector<c10::IValue>& of_all) {
  require(saved.isGenericDict(), Status::kCorrupt, "the saved random states are no map");
  const auto states = saved.toGenericDict();
  c10::IValue value;
  const c10::IValue accumulation = member(states, "accumulation", value);
  const state::AccumulationGroups own = groups();
  require(accumulation.isList() && accumulation.toListRef().size() == own.size(), Status::kCorrupt,
          "the saved random states are of another number of models");
  set_default_generator(c10::Device(c10::kCPU), member(states, "cpu", value).toTensor());
  if (!state_.device().is_cpu()) set_default_generator(state_.device(), member(states, "device", value).toTensor());
  if (grad_scaler_ != nullptr) grad_scaler_->load_state_dict(member(states, "scaler", value));
  const c10::IValue hooks = member(states, "comm_hooks", value);
  require(hooks.isList() && hooks.toListRef().size() == models_.size(), Status::kCorrupt,
          "the saved states of hooks are of another number of models");
  for (size_t i = 0; i < models_.size(); i++) models_[i].parallel()->load_reduction_state(hooks.toListRef()[i]);
  if (const auto saved_by = static_cast<int>(of_all.size()); saved_by > 0 && state_.process_index() >= saved_by) {
    diverge(state::default_generator(c10::Device(c10::kCPU)), state_.process_index());
    if (!state_.device().is_cpu()) diverge(state::default_generator(state_.device()), state_.process_index());
  }
  for (size_t i = 0; i < own.size(); i++) *own[i] = load_group(accumulation.toListRef()[i]);
  // Files of earlier versions have none, and other numbers of ranks share rank 0's.
  if (const auto buffers = states.find("buffers"); of_all.empty() && buffers != states.end())
    load_own_buffers(models(), buffers->value());
  load_open_gradients(models(), of_all.empty() ? member(states, "gradients", value) : mean_gradients(of_all));
}

// As if this rank had done the steps that it had no inputs for.
void Accelerator::broadcast_training_state(int rank) {
  auto objects = tree::new_list();
  for (const auto& optimizer : optimizers_) objects.push_back(optimizer->state_dict());
  for (const auto& scheduler : schedulers_) objects.push_back(scheduler->state_dict());
  for (const auto& group : groups()) objects.push_back(save_group(*group));
  if (grad_scaler_ != nullptr) objects.push_back(grad_scaler_->state_dict());
  const c10::IValue received = comm::broadcast_object_list(*state_.communicator(), objects, rank);
  if (rank == state_.process_index()) return;
  const auto taken = received.toListRef();
  size_t next = 0;
  for (const auto& optimizer : optimizers_) optimizer->load_state_dict(taken[next++]);
  for (const auto& scheduler : schedulers_) scheduler->load_state_dict(taken[next++]);
  for (const auto& group : groups()) *group = load_group(taken[next++]);
  if (grad_scaler_ != nullptr) grad_scaler_->load_state_dict(taken[next++]);
}

void Accelerator::save_state(const std::string& folder) {
  const auto collect = [this] {
    checkpoint::TrainingState state;
    for (const auto& model : models()) state.models.push_back(model->state_dict());
    for (const auto& optimizer : optimizers_) state.optimizers.push_back(optimizer->state_dict());
    for (const auto& scheduler : schedulers_) state.schedulers.push_back(scheduler->state_dict());
    for (const auto& loader : loaders_) state.dataloaders.push_back(loader->state_dict());
    for (const RegisteredObject& object : objects_) state.custom.emplace_back(object.name, object.save());
    state.random_states = random_states();
    return state;
  };
  checkpoint::save_training_state(folder, collect, ranks_of(*state_.communicator()));
}

// Everything is read and checked before the first object changes; what only an object can judge it judges before it
// changes.
void Accelerator::load_state(const std::string& folder) {
  checkpoint::TrainingState like;
  for (const auto& model : models()) like.models.push_back(model->state_dict());
  like.optimizers.resize(optimizers_.size());
  like.schedulers.resize(schedulers_.size());
  like.dataloaders.resize(loaders_.size());
  for (const RegisteredObject& object : objects_) like.custom.emplace_back(object.name, c10::IValue());
  const checkpoint::TrainingState state =
      checkpoint::load_training_state(folder, like, ranks_of(*state_.communicator()));
  const auto& of_all = state.random_states_of_all;
  for (const c10::IValue& random_states : of_all) check_open_groups(random_states, of_all.size());
  for (size_t i = 0; i < optimizers_.size(); i++) optimizers_[i]->load_state_dict(state.optimizers[i]);
  for (size_t i = 0; i < models_.size(); i++) models_[i].model->load_state_dict(state.models[i]);
  for (size_t i = 0; i < schedulers_.size(); i++) schedulers_[i]->load_state_dict(state.schedulers[i]);
  for (size_t i = 0; i < loaders_.size(); i++)
    if (loaders_[i]->resumes()) loaders_[i]->load_state_dict(state.dataloaders[i]);
  for (size_t i = 0; i < objects_.size(); i++) objects_[i].load(state.custom[i].second);
  load_random_states(state.random_states, of_all);
}

void Accelerator::save_model(const nn::Module& module, const std::string& folder) {
  if (!state_.is_main_process()) return;
  const bool made = mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST;
  require(made, Status::kIo, "folder ", folder, " cannot be made: ", std::strerror(errno));
  const auto contents = checkpoint::drop_tied(module.state_dict(), {{"format", "pt"}});
  checkpoint::save_safetensors(folder + "/model.safetensors", contents.tensors, contents.metadata);
}

}  // namespace accel::accelerator
