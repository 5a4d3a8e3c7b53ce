#include "accelerator/rank_state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/error.hpp"
#include "state/random.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

c10::IValue member(const c10::impl::GenericDict& map, const char* key) {
  const auto found = map.find(key);
  require(found != map.end(), Status::kCorrupt, "the saved accumulation of a model lacks '", key, "'");
  return found->value();
}

c10::IValue save_window(const state::AccumulationWindow& window) {
  auto saved = tree::new_map();
  saved.insert("micro_batch", window.micro_batch);
  saved.insert("length", window.length);
  saved.insert("complete", window.complete);
  saved.insert("weight", window.weight);
  saved.insert("items", window.items);
  return saved;
}

state::AccumulationWindow load_window(const c10::IValue& saved) {
  require(saved.isGenericDict(), Status::kCorrupt, "the saved accumulation of a model is no map");
  const auto map = saved.toGenericDict();
  state::AccumulationWindow window;
  window.micro_batch = member(map, "micro_batch").toInt();
  window.length = member(map, "length").toInt();
  window.complete = member(map, "complete").toBool();
  window.weight = member(map, "weight").toDouble();
  window.items = member(map, "items").toInt();
  return window;
}

// Only buffers that the model files have too.
nn::NamedTensors saved_buffers(const nn::Module& model) {
  std::unordered_set<std::string> saved;
  for (const auto& entry : model.state_dict()) saved.insert(entry.first);
  nn::NamedTensors buffers = model.named_buffers();
  const auto is_left_out = [&](const nn::NamedTensor& buffer) { return saved.count(buffer.first) == 0; };
  buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_left_out), buffers.end());
  return buffers;
}

std::vector<c10::IValue> list_of_gradients(const c10::IValue& saved) {
  require(saved.isList(), Status::kCorrupt, "the saved gradients are no list");
  return saved.toListRef().vec();
}

}  // namespace

c10::IValue GeneratorState::state_dict() const { return state::generator_state(state::default_generator(device_)); }

void GeneratorState::load_state_dict(const c10::IValue& state) {
  at::Generator generator = state::default_generator(device_);
  state::set_generator_state(generator, state.toTensor());
}

void GeneratorState::load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) {
  RankState::load_states_of_ranks(states, rank);
  if (static_cast<size_t>(rank) < states.size()) return;
  at::Generator generator = state::default_generator(device_);
  generator.set_current_seed(generator.current_seed() + static_cast<uint64_t>(rank));
}

c10::IValue AccumulationState::state_dict() const {
  auto saved = tree::new_list();
  for (const auto& window : windows_) saved.push_back(save_window(*window));
  return saved;
}

void AccumulationState::load_state_dict(const c10::IValue& state) {
  require(state.isList() && state.toListRef().size() == windows_.size(), Status::kCorrupt,
          "the saved accumulation is of another number of models");
  std::vector<state::AccumulationWindow> loaded;
  for (const c10::IValue& window : state.toListRef()) loaded.push_back(load_window(window));
  for (size_t i = 0; i < windows_.size(); i++) *windows_[i] = loaded[i];
}

void AccumulationState::check_states_of_ranks(const std::vector<c10::IValue>& states) const {
  for (const c10::IValue& of_rank : states) {
    require(of_rank.isList(), Status::kCorrupt, "the saved accumulation is no list");
    for (const c10::IValue& saved : of_rank.toListRef()) {
      const state::AccumulationWindow window = load_window(saved);
      require(window.complete || window.items < 0, Status::kUnsupported, "the state was saved by ", states.size(),
              " ranks in the middle of a group whose items are counted; expected as many ranks, or a state behind a "
              "step");
    }
  }
}

c10::IValue ReductionState::state_dict() const {
  auto states = tree::new_list();
  for (const auto& model : models_) states.push_back(model->reduction_state());
  return states;
}

void ReductionState::load_state_dict(const c10::IValue& state) {
  require(state.isList() && state.toListRef().size() == models_.size(), Status::kCorrupt,
          "the saved states of hooks are of another number of models");
  for (size_t i = 0; i < models_.size(); i++) models_[i]->load_reduction_state(state.toListRef()[i]);
}

c10::IValue BufferState::state_dict() const {
  if (is_main_process_) return {};
  auto of_all = tree::new_list();
  for (const nn::ModulePtr& model : models_) {
    auto buffers = tree::new_map();
    for (const auto& [name, buffer] : saved_buffers(*model)) buffers.insert(name, buffer);
    of_all.push_back(buffers);
  }
  return of_all;
}

void BufferState::load_state_dict(const c10::IValue& state) {
  if (state.isNone()) return;
  const at::NoGradGuard no_grad;
  require(state.isList() && state.toListRef().size() == models_.size(), Status::kCorrupt,
          "the saved buffers are of another number of models");
  for (size_t i = 0; i < models_.size(); i++) {
    require(state.toListRef()[i].isGenericDict(), Status::kCorrupt, "the saved buffers of a model are no map");
    const auto buffers = state.toListRef()[i].toGenericDict();
    for (const auto& [name, buffer] : saved_buffers(*models_[i])) {
      const auto found = buffers.find(name);
      require(found != buffers.end() && found->value().isTensor(), Status::kCorrupt, "the saved buffers lack '", name,
              "'");
      require(found->value().toTensor().sizes() == buffer.sizes(), Status::kShapeMismatch, "the saved buffer '", name,
              "' has shape ", found->value().toTensor().sizes(), "; that of the model has ", buffer.sizes());
      buffer.copy_(found->value().toTensor());
    }
  }
}

c10::IValue GradientSums::state_dict() const {
  auto gradients = tree::new_list();
  if (!open_) return gradients;
  for (const nn::ModulePtr& model : models_)
    for (const at::Tensor& parameter : model->parameters())
      gradients.push_back(parameter.grad().defined() ? c10::IValue(parameter.grad()) : c10::IValue());
  return gradients;
}

// In place, because gradients may be views of communication buckets. Gradients from before the load are dropped.
void GradientSums::load_state_dict(const c10::IValue& state) {
  const at::NoGradGuard no_grad;
  const auto gradients = list_of_gradients(state);
  size_t next = 0;
  for (const nn::ModulePtr& model : models_)
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

void GradientSums::load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  for (const c10::IValue& of_rank : states) {
    const auto gradients = list_of_gradients(of_rank);
    if (sums.size() < gradients.size()) sums.resize(gradients.size());
    for (size_t i = 0; i < gradients.size(); i++) {
      if (!gradients[i].isTensor()) continue;
      sums[i] = sums[i].defined() ? sums[i] + gradients[i].toTensor() : gradients[i].toTensor();
    }
  }
  auto means = tree::new_list();
  for (const at::Tensor& sum : sums)
    means.push_back(sum.defined() ? c10::IValue(sum / static_cast<double>(states.size())) : c10::IValue());
  load_state_dict(means);
}

}  // namespace accel::accelerator
