// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/rank_state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "nn/module_walks.hpp"
#include "parallel/localsgd/local_sgd.hpp"
#include "tensor/device/generator.hpp"
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
  require(saved.isGenericDict(), Status::kCorrupt, "the saved accumulation of a model is not a map");
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
  nn::NamedTensors buffers = nn::named_buffers(model);
  const auto is_left_out = [&](const nn::NamedTensor& buffer) { return saved.count(buffer.first) == 0; };
  buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_left_out), buffers.end());
  return buffers;
}

// A list in the saved state of local SGD; empty where there is none.
std::vector<c10::IValue> items_of(const c10::IValue& state, const char* key) {
  require(state.isGenericDict(), Status::kCorrupt, "the saved state of local SGD is not a map");
  const auto map = state.toGenericDict();
  const auto found = map.find(key);
  if (found == map.end()) return {};
  require(found->value().isList(), Status::kCorrupt, "'", key, "' in the saved state of local SGD is not a list");
  return found->value().toListRef().vec();
}

}  // namespace

std::string GeneratorState::key(c10::Device device) {
  if (device.is_cpu()) return "torch_manual_seed";
  return "torch_" + c10::DeviceTypeName(device.type(), /*lower_case=*/true) + "_manual_seed";
}

// Accelerate has a list of all devices of a process; ours has one.
c10::IValue GeneratorState::state_dict() const {
  const at::Tensor state = tensor::generator_state(tensor::default_generator(device_));
  return device_.is_cpu() ? c10::IValue(state) : c10::IValue(tree::new_list({state}));
}

void GeneratorState::load_state_dict(const c10::IValue& state) {
  c10::IValue own = state;
  if (tree::is_sequence(state) && !tree::sequence_items(state).empty()) {
    const auto items = tree::sequence_items(state);
    const auto index = static_cast<size_t>(device_.has_index() ? device_.index() : 0);
    own = items.size() == 1 ? items[0] : items[std::min(index, items.size() - 1)];
  }
  if (own.isNone()) {
    log(LogLevel::kWarning, "the checkpoint has no random state of ", device_,
        ": it was saved on another kind of device; the generator continues as it is");
    return;
  }
  require(own.isTensor(), Status::kCorrupt, "the saved random state of ", device_, " is of kind ", tree::kind_name(own),
          "; expected a tensor");
  at::Generator generator = tensor::default_generator(device_);
  tensor::set_generator_state(generator, own.toTensor());
}

void GeneratorState::load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) {
  RankState::load_states_of_ranks(states, rank);
  if (static_cast<size_t>(rank) < states.size() || states[0].isNone()) return;
  at::Generator generator = tensor::default_generator(device_);
  generator.set_current_seed(generator.current_seed() + static_cast<uint64_t>(rank));
}

int64_t latest_micro_batch(const state::AccumulationWindows& windows) {
  int64_t latest = 0;
  for (const auto& window : windows) latest = std::max(latest, window->micro_batch);
  return latest;
}

c10::IValue StepState::state_dict() const { return latest_micro_batch(windows_); }

// Behind a step: gradients of an open window are not in a checkpoint of Accelerate.
void StepState::load_state_dict(const c10::IValue& state) {
  if (state.isNone()) return;
  require(state.isInt(), Status::kCorrupt, "the saved step is of kind ", tree::kind_name(state),
          "; expected an integer");
  for (const auto& window : windows_) {
    *window = {};
    window->micro_batch = state.toInt();
  }
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
    require(of_rank.isList(), Status::kCorrupt, "the saved accumulation is not a list");
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
  for (const auto& model : models_) {
    const auto* const exchange = model->exchange();
    states.push_back(exchange != nullptr ? exchange->reduction_state() : c10::IValue());
  }
  return states;
}

void ReductionState::load_state_dict(const c10::IValue& state) {
  require(state.isList() && state.toListRef().size() == models_.size(), Status::kCorrupt,
          "the saved states of hooks are of another number of models");
  for (size_t i = 0; i < models_.size(); i++)
    if (auto* const exchange = models_[i]->exchange()) exchange->load_reduction_state(state.toListRef()[i]);
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
    require(state.toListRef()[i].isGenericDict(), Status::kCorrupt, "the saved buffers of a model are not a map");
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

LocalSgdState::LocalSgdState(std::vector<std::shared_ptr<parallel::LocalSgd>> runs,
                             std::vector<std::shared_ptr<tensor::Stateful>> optimizers, bool is_main_process)
    : runs_(std::move(runs)), optimizers_(std::move(optimizers)), is_main_process_(is_main_process) {
  for (const auto& run : runs_)
    for (const at::Tensor& parameter : run->model()->module()->parameters()) weights_.push_back(parameter);
}

c10::IValue LocalSgdState::state_dict() const {
  auto saved = tree::new_map();
  auto runs = tree::new_list(), weights = tree::new_list(), optimizers = tree::new_list();
  for (const auto& run : runs_) runs.push_back(run->state_dict());
  saved.insert("runs", runs);
  const bool differ = std::any_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->has_local_steps(); });
  if (is_main_process_ || !differ) return saved;
  for (const at::Tensor& weight : weights_) weights.push_back(weight.detach());
  for (const auto& optimizer : optimizers_) optimizers.push_back(optimizer->state_dict());
  saved.insert("weights", weights);
  saved.insert("optimizers", optimizers);
  return saved;
}

// A state that was saved without local SGD, or by one process, which has none, begins it anew.
void LocalSgdState::load_runs(const c10::IValue& state) const {
  const std::vector<c10::IValue> saved = items_of(state, "runs");
  for (size_t i = 0; i < runs_.size(); i++) {
    if (saved.empty() || (saved[i].isGenericDict() && saved[i].toGenericDict().empty()))
      runs_[i]->restart();
    else
      runs_[i]->load_state_dict(saved[i]);
  }
}

void LocalSgdState::check_states_of_ranks(const std::vector<c10::IValue>& states) const {
  for (const c10::IValue& of_rank : states) {
    const size_t saved = items_of(of_rank, "runs").size(), open = runs_.size();
    require(saved == 0 || open == 0 || saved == open, Status::kInvalidState, "the state was saved inside of ", saved,
            " scopes of local SGD and ", open, " are open; expected the same ones, or none");
  }
}

void LocalSgdState::load_state_dict(const c10::IValue& state) {
  check_states_of_ranks({state});
  if (runs_.empty()) return;
  load_runs(state);
  const std::vector<c10::IValue> weights = items_of(state, "weights"), optimizers = items_of(state, "optimizers");
  if (weights.empty()) return;
  require(weights.size() == weights_.size() && optimizers.size() == optimizers_.size(), Status::kCorrupt,
          "the saved weights of local SGD are of another model, or another number of optimizers");
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < weights.size(); i++) weights_[i].copy_(weights[i].toTensor());
  for (size_t i = 0; i < optimizers.size(); i++) optimizers_[i]->load_state_dict(optimizers[i]);
}

void LocalSgdState::load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
  if (runs_.empty()) return;
  load_runs(states.front());
  std::vector<at::Tensor> sums;  // rank 0's are in the models already
  for (const at::Tensor& weight : weights_) sums.push_back(weight.detach().clone());
  for (const c10::IValue& of_rank : states) {
    const std::vector<c10::IValue> weights = items_of(of_rank, "weights");
    if (weights.empty() && &of_rank != &states.front()) return;  // all are equal
    require(weights.empty() || weights.size() == sums.size(), Status::kCorrupt,
            "the saved weights of local SGD are of another model");
    for (size_t i = 0; i < weights.size(); i++) sums[i].add_(weights[i].toTensor());
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < sums.size(); i++) weights_[i].copy_(sums[i].div_(static_cast<double>(states.size())));
}

}  // namespace accel::accelerator
