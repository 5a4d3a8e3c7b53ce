// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/placed_state.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "checkpoint/optimizer_names.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "checkpoint/training_state.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "nn/module_walks.hpp"
#include "tensor/file_memory.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using tensor::Placement;
using tensor::PlacementPtr;

// How this rank loads a value where no placement says it: a tensor that is in files is read whole.
PlacementPtr whole_if_saved(const c10::IValue& value, const std::string& name) {
  if (tensor::saved_tensor_of(value) == nullptr) return nullptr;
  return std::make_shared<const Placement>(tensor::whole_placement(tensor::shape_of_saved(value, name)));
}

c10::IValue read_own(const c10::IValue& value, const PlacementPtr& placement, const std::string& name) {
  return placement == nullptr ? value : c10::IValue(tensor::read_part(value, *placement, name));
}

template <typename Change>
c10::IValue change_members(const c10::IValue& map, const Change& change) {
  auto changed = tree::new_map();
  for (const auto& member : map.toGenericDict()) changed.insert(member.key(), change(member.key(), member.value()));
  return changed;
}

bool is_placed(parallel::ParallelModel& model) {
  return is_in_stages(model) || !nn::placements(*model.module()).empty();
}

nn::Placements placements_of(const std::vector<parallel::ParallelModelPtr>& models) {
  nn::Placements placements;
  for (const auto& model : models) placements.add(nn::placements(*model->module()));
  return placements;
}

// Changes the entries of each parameter's state: change(entry, index of the parameter, key, name).
template <typename Change>
c10::IValue change_entries(const c10::IValue& state, const Change& change) {
  return change_members(state, [&](const c10::IValue& section, const c10::IValue& content) {
    if (!section.isString() || section.toStringRef() != "state" || !content.isGenericDict()) return content;
    return change_members(content, [&](const c10::IValue& number, const c10::IValue& entries) {
      if (!entries.isGenericDict()) return entries;
      const size_t index = number.isInt() ? static_cast<size_t>(number.toInt()) : std::stoul(number.toStringRef());
      return change_members(entries, [&](const c10::IValue& key, const c10::IValue& value) {
        const std::string entry = key.isString() ? key.toStringRef() : "";
        return change(value, index, entry, tree::path_below(std::to_string(index), entry));
      });
    });
  });
}

}  // namespace

// Tensors of all stages, in the order of the whole model: those that other ranks have are parts without elements. Tied
// ones share a part under their names.
c10::IValue ModelState::state_of_stages() const {
  const nn::Module& module = *model_->module();
  std::unordered_map<std::string, at::Tensor> own;
  for (const auto& [name, values] : module.state_dict()) own.emplace(name, values);
  auto state = tree::new_map();
  for (const parallel::StageTensor& each : model_->pipeline()->state()) {
    if (each.name != each.first_name) {
      state.insert(each.name, state.at(each.first_name));
      continue;
    }
    const auto found = own.find(each.name);
    const at::Tensor part = found != own.end() ? found->second : at::empty({0}, at::dtype(each.dtype));
    state.insert(each.name, tensor::chunk_value(part, each.placement));
  }
  return state;
}

c10::IValue ModelState::state_dict() const {
  const nn::Module& module = *model_->module();
  model_->finish_step();
  if (is_in_stages(*model_)) return state_of_stages();
  const nn::Placements placements = nn::placements(module);
  if (placements.empty()) return checkpoint::model_state(module.state_dict());
  auto state = tree::new_map();
  for (const auto& [name, tensor] : module.state_dict()) {
    PlacementPtr placement = placements.find(nn::find_tensor(module, name));
    state.insert(name, placement == nullptr ? c10::IValue(tensor) : tensor::chunk_value(tensor, std::move(placement)));
  }
  return state;
}

template <typename Visit>
void ModelState::for_each_own(const c10::IValue& state, const Visit& visit) const {
  const nn::Module& module = *model_->module();
  const nn::Placements placements = nn::placements(module);
  std::unordered_map<std::string, PlacementPtr> own;
  for (const auto& [name, tensor] : module.state_dict())
    own.emplace(name, placements.find(nn::find_tensor(module, name)));
  std::unordered_set<std::string> of_other_stages;
  if (is_in_stages(*model_))
    for (const parallel::StageTensor& each : model_->pipeline()->state()) {
      const c10::IValue* const value = tree::find_member(state, each.first_name.c_str());
      const auto found = own.find(each.name);
      if (found == own.end())
        of_other_stages.insert(each.name);
      else if (each.name != each.first_name && tree::find_member(state, each.name.c_str()) == nullptr &&
               value != nullptr)
        visit(each.name, *value, found->second);
    }
  for (const auto& member : state.toGenericDict()) {
    const std::string& name = member.key().toStringRef();
    if (of_other_stages.count(name) > 0) continue;
    const auto found = own.find(name);
    const bool is_placed = found != own.end() && found->second != nullptr;
    visit(name, member.value(), is_placed ? found->second : whole_if_saved(member.value(), name));
  }
}

bool ModelState::takes_chunks() const { return is_placed(*model_); }

void ModelState::check_chunks(const c10::IValue& state) const {
  for_each_own(state, [](const std::string& name, const c10::IValue& value, const PlacementPtr& placement) {
    if (placement != nullptr) tensor::check_part(value, *placement, name);
  });
}

void ModelState::load_state_dict(const c10::IValue& state) {
  nn::Module& module = *model_->module();
  model_->finish_step();
  if (!takes_chunks()) {
    module.load_state_dict(checkpoint::model_tensors(state));
    return;
  }
  nn::NamedTensors tensors;
  for_each_own(state, [&](const std::string& name, const c10::IValue& value, const PlacementPtr& placement) {
    const c10::IValue own = read_own(value, placement, name);
    require(own.isTensor(), Status::kTypeMismatch, "'", name, "' is of kind ", tree::kind_name(own),
            "; expected a tensor");
    tensors.emplace_back(name, own.toTensor());
  });
  module.load_state_dict(tensors);
}

void ModelState::load_stored(const c10::IValue& state) {
  model_->finish_step();
  model_->module()->load_state_dict(checkpoint::model_tensors(state));
}

void OptimizerState::finish_steps() const {
  for (const auto& model : models_) model->finish_step();
}

bool OptimizerState::takes_chunks() const { return first_placed(models_) != nullptr; }

// Where the optimizer does not know its entries, one of the parameter's shape is like it.
bool OptimizerState::is_like_parameter(const std::string& entry, const c10::IValue& value,
                                       c10::IntArrayRef sizes) const {
  const bool is_tensor = (value.isTensor() && value.toTensor().defined()) || tensor::saved_tensor_of(value) != nullptr;
  if (!is_tensor) return false;
  if (const auto known = optimizer_->is_like_parameter(entry)) return *known;
  return tensor::shape_of_saved(value, entry) == sizes;
}

template <typename Change>
c10::IValue OptimizerState::change_placed(const c10::IValue& state, bool is_stored, const Change& change) const {
  const nn::Placements placements = placements_of(models_);
  const std::vector<at::Tensor> parameters = optimizer_->parameters();
  return change_entries(
      state, [&](const c10::IValue& value, size_t index, const std::string& entry, const std::string& name) {
        if (index >= parameters.size()) return value;
        const PlacementPtr placement = placements.find(parameters[index]);
        const bool is_placed =
            placement != nullptr &&
            is_like_parameter(entry, value, is_stored ? parameters[index].sizes() : c10::IntArrayRef(placement->shape));
        return change(value, is_placed ? placement : nullptr, name);
      });
}

c10::IValue OptimizerState::state_dict() const {
  if (!takes_chunks()) return optimizer_->state_dict();
  finish_steps();
  const c10::IValue own =
      change_placed(optimizer_->state_dict(), /*is_stored=*/true,
                    [](const c10::IValue& value, const PlacementPtr& placement, const std::string&) {
                      return placement == nullptr ? value : tensor::chunk_value(value.toTensor(), placement);
                    });
  return numbers_ == nullptr ? own : numbers_->to_whole(own);
}

c10::IValue OptimizerState::own_part(const c10::IValue& state) const {
  return numbers_ == nullptr ? state : numbers_->to_own(state);
}

void OptimizerState::load_state_dict(const c10::IValue& state) {
  if (!takes_chunks()) return optimizer_->load_state_dict(state);
  finish_steps();
  optimizer_->load_state_dict(
      change_placed(own_part(state), /*is_stored=*/false,
                    [](const c10::IValue& value, const PlacementPtr& placement, const std::string& name) {
                      return read_own(value, placement == nullptr ? whole_if_saved(value, name) : placement, name);
                    }));
}

void OptimizerState::check_chunks(const c10::IValue& state) const {
  change_placed(own_part(state), /*is_stored=*/false,
                [](const c10::IValue& value, PlacementPtr placement, const std::string& name) {
                  if (placement == nullptr) placement = whole_if_saved(value, name);
                  if (placement != nullptr) tensor::check_part(value, *placement, name);
                  return value;
                });
}

void OptimizerState::check_stored(const c10::IValue& state) const {
  const std::vector<at::Tensor> parameters = optimizer_->parameters();
  change_entries(state, [&](const c10::IValue& value, size_t index, const std::string& entry, const std::string& name) {
    if (index >= parameters.size() || !is_like_parameter(entry, value, parameters[index].sizes())) return value;
    require(value.toTensor().sizes() == parameters[index].sizes(), Status::kShapeMismatch, "'", name,
            "' has the shape ", value.toTensor().sizes(), "; expected ", parameters[index].sizes(),
            ", the rows of this rank");
    return value;
  });
}

void OptimizerState::load_stored(const c10::IValue& state) {
  finish_steps();
  optimizer_->load_state_dict(state);
}

std::vector<checkpoint::NamedGroup> named_groups(const optim::Optimizer& optimizer,
                                                 const std::vector<nn::ModulePtr>& models) {
  std::unordered_map<const c10::TensorImpl*, std::vector<std::string>> names;
  for (const nn::ModulePtr& model : models)
    for (const auto& [name, tensor] : model->state_dict())
      names[nn::find_tensor(*model, name).unsafeGetTensorImpl()].push_back(checkpoint::unwrapped_name(name));
  std::vector<checkpoint::NamedGroup> groups;
  for (const optim::ParameterGroup& group : optimizer.groups()) {
    checkpoint::NamedGroup& named = groups.emplace_back();
    for (const at::Tensor& parameter : group.parameters)
      named.push_back({names[parameter.unsafeGetTensorImpl()], !parameter.requires_grad()});
  }
  return groups;
}

namespace {

void add_parts(const c10::IValue& value, const std::string& path, std::vector<std::string>& paths) {
  if (tensor::chunk_of(value) != nullptr) paths.push_back(path);
  if (!value.isGenericDict()) return;
  for (const auto& member : value.toGenericDict()) {
    const c10::IValue& key = member.key();
    add_parts(member.value(), tree::path_below(path, key.isInt() ? std::to_string(key.toInt()) : key.toStringRef()),
              paths);
  }
}

// The maps sorted by their keys: parts are gathered in this order, and a rank has the order in which its parameters got
// their first gradients.
c10::IValue in_order(const c10::IValue& value) {
  if (!value.isGenericDict()) return value;
  std::vector<std::pair<c10::IValue, c10::IValue>> members;
  for (const auto& member : value.toGenericDict()) members.emplace_back(member.key(), in_order(member.value()));
  std::stable_sort(members.begin(), members.end(), [](const auto& one, const auto& other) {
    const c10::IValue &first = one.first, &second = other.first;
    if (first.isInt() && second.isInt()) return first.toInt() < second.toInt();
    return first.isString() && second.isString() && first.toStringRef() < second.toStringRef();
  });
  auto sorted = tree::new_map();
  for (const auto& [key, member] : members) sorted.insert(key, member);
  return sorted;
}

// A line for each.
std::string paths_of_parts(const c10::IValue& state) {
  std::vector<std::string> paths;
  add_parts(state, "", paths);
  std::string lines;
  for (const std::string& path : paths) lines += path + '\n';
  return lines;
}

// The first path that only one of the two texts has, and whether it is the first text.
std::pair<std::string, bool> first_difference(const std::string& first, const std::string& second) {
  const std::vector<std::string> some = split_text(first, '\n'), others = split_text(second, '\n');
  const auto lacks = [](const auto& paths) {
    return [&paths](const std::string& path) { return std::find(paths.begin(), paths.end(), path) == paths.end(); };
  };
  const auto of_first = std::find_if(some.begin(), some.end(), lacks(others));
  if (of_first != some.end()) return {*of_first, true};
  return {*std::find_if(others.begin(), others.end(), lacks(some)), false};
}

at::Tensor kept_in(const std::string& folder, const at::Tensor& tensor) {
  if (!folder.empty() && tensor.nbytes() >= tensor::kLeastFileBytes) try {
      return tensor::file_zeros(folder, tensor.sizes(), tensor.scalar_type()).copy_(tensor);
    } catch (const Error&) {  // such as a full disk; the write of the checkpoint will say so
    }
  return tensor.cpu();
}

}  // namespace

c10::IValue with_equal_parts(const std::function<c10::IValue()>& make_state, const checkpoint::Ranks& ranks) {
  c10::IValue state;
  const std::vector<std::string> parts = checkpoint::run_on_all_ranks(ranks, [&] {
    state = in_order(make_state());
    return paths_of_parts(state);
  });
  for (size_t rank = 1; rank < parts.size(); rank++) {
    if (parts[rank] == parts[0]) continue;
    const auto [path, rank_0_has_it] = first_difference(parts[0], parts[rank]);
    fail(Status::kInvalidState, "the optimizer of rank ", rank_0_has_it ? rank : 0, " has no '", path, "', which rank ",
         rank_0_has_it ? 0 : rank,
         " has; expected the same entries on all ranks, each with its part of the parameter: let all ranks step, or "
         "load "
         "a state on all of them, before it is saved");
  }
  return state;
}

c10::IValue gather_state(const c10::IValue& state, const parallel::PlacedParameters& placed, bool keep,
                         const std::string& folder) {
  std::unordered_map<const tensor::TensorChunk*, c10::IValue> gathered;  // tied tensors share their part
  return tree::map_leaves(state, [&](const c10::IValue& leaf) -> c10::IValue {
    const tensor::TensorChunk* const part = tensor::chunk_of(leaf);
    if (part == nullptr) return leaf;
    const auto known = gathered.find(part);
    if (known != gathered.end()) return known->second;
    const at::Tensor whole = placed.gather(part->data, *part->placement);
    return gathered[part] = keep ? c10::IValue(kept_in(folder, whole)) : c10::IValue();
  });
}

const parallel::ParallelModel* first_placed(const std::vector<parallel::ParallelModelPtr>& models) {
  const auto found = std::find_if(models.begin(), models.end(), [](const auto& model) { return is_placed(*model); });
  return found == models.end() ? nullptr : found->get();
}

StateDictType state_dict_type(const std::vector<parallel::ParallelModelPtr>& models) {
  for (const auto& model : models)
    if (const auto* const parts = model->parts()) return parts->state_dict_type();
  return StateDictType::kFullStateDict;
}

c10::IValue form_to_save(const c10::IValue& state, const parallel::PlacedParameters& placed, bool whole, bool keep,
                         const std::string& folder) {
  if (whole) return gather_state(state, placed, keep, folder);
  return tree::map_leaves(state, [&](const c10::IValue& leaf) {
    const tensor::TensorChunk* const part = tensor::chunk_of(leaf);
    const bool is_kept = part == nullptr || part->placement->boxes.empty() || placed.is_first(*part->placement);
    return is_kept ? leaf : c10::IValue();
  });
}

c10::IValue stored_tensors(const c10::IValue& state) {
  return tree::map_leaves(state, [](const c10::IValue& leaf) {
    const tensor::TensorChunk* const chunk = tensor::chunk_of(leaf);
    return chunk == nullptr ? leaf : c10::IValue(chunk->data);
  });
}

c10::IValue with_stored_tensors(const c10::IValue& state, const c10::IValue& stored) {
  if (!stored.isGenericDict()) return stored;
  const auto former = state.toGenericDict();
  return change_members(stored, [&](const c10::IValue& name, const c10::IValue& value) {
    const auto found = former.find(name);
    const tensor::TensorChunk* const chunk = found == former.end() ? nullptr : tensor::chunk_of(found->value());
    if (chunk == nullptr || !value.isTensor() || value.toTensor().sizes() != chunk->data.sizes()) return value;
    return tensor::chunk_value(value.toTensor(), chunk->placement);
  });
}

}  // namespace accel::accelerator
