// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/stage_numbers.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tensor_chunk.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

constexpr const char* kDtype = "dtype";  // of a part, which is described by it

struct Known {
  std::string key;
  size_t order = 0;
  const parallel::StageTensor* tensor = nullptr;  // under the first of its names
};

size_t number_of(const c10::IValue& key) {
  return key.isInt() ? static_cast<size_t>(key.toInt()) : std::stoul(key.toStringRef());
}

// The values of a parameter's state as other ranks need them.
c10::IValue describe(const c10::IValue& entries) {
  if (!entries.isGenericDict()) return entries;
  auto described = tree::new_map();
  for (const auto& entry : entries.toGenericDict()) {
    const tensor::TensorChunk* const part = tensor::chunk_of(entry.value());
    if (part == nullptr) {
      described.insert(entry.key(), tree::new_list({entry.value()}));
      continue;
    }
    auto dtype = tree::new_map();
    dtype.insert(kDtype, static_cast<int64_t>(part->data.scalar_type()));
    described.insert(entry.key(), dtype);
  }
  return described;
}

c10::IValue without_elements(const c10::IValue& described, const tensor::PlacementPtr& placement) {
  if (!described.isGenericDict()) return described;
  auto entries = tree::new_map();
  for (const auto& entry : described.toGenericDict()) {
    const c10::IValue* const dtype = tree::find_member(entry.value(), kDtype);
    if (dtype == nullptr)
      entries.insert(entry.key(), tree::sequence_items(entry.value())[0]);
    else
      entries.insert(
          entry.key(),
          tensor::chunk_value(at::empty({0}, at::dtype(static_cast<at::ScalarType>(dtype->toInt()))), placement));
  }
  return entries;
}

// The state with other numbers: `state` has the entries of parameters, and `groups` their numbers.
c10::IValue renumbered(const c10::IValue& optimizer, const c10::IValue& state,
                       const std::vector<std::vector<size_t>>& groups) {
  auto changed = tree::new_map();
  for (const auto& member : optimizer.toGenericDict()) {
    const std::string section = member.key().isString() ? member.key().toStringRef() : "";
    if (section == "state") {
      changed.insert(member.key(), state);
    } else if (section == "param_groups") {
      auto list = tree::new_list();
      const auto former = tree::sequence_items(member.value());
      require(former.size() == groups.size(), Status::kInvalidState, "the optimizer has ", groups.size(),
              " groups of parameters and the saved one ", former.size(), "; expected as many");
      for (size_t group = 0; group < groups.size(); group++) {
        auto copy = tree::new_map();
        for (const auto& setting : former[group].toGenericDict()) {
          auto numbers = tree::new_list();
          for (const size_t number : groups[group]) numbers.push_back(static_cast<int64_t>(number));
          const bool is_numbers = setting.key().toStringRef() == "params";
          copy.insert(setting.key(), is_numbers ? c10::IValue(numbers) : setting.value());
        }
        list.push_back(copy);
      }
      changed.insert(member.key(), list);
    } else {
      changed.insert(member.key(), member.value());
    }
  }
  return changed;
}

}  // namespace

bool is_in_stages(parallel::ParallelModel& model) {
  const parallel::StagePipeline* const pipeline = model.pipeline();
  return pipeline != nullptr && !pipeline->state().empty();
}

std::shared_ptr<const StageNumbers> StageNumbers::agree(const optim::Optimizer& optimizer,
                                                        const std::vector<parallel::ParallelModelPtr>& models) {
  const bool has_stages =
      std::any_of(models.begin(), models.end(), [](const auto& each) { return is_in_stages(*each); });
  if (!has_stages) return nullptr;
  return std::shared_ptr<const StageNumbers>(new StageNumbers(optimizer, models));
}

StageNumbers::StageNumbers(const optim::Optimizer& optimizer, const std::vector<parallel::ParallelModelPtr>& models) {
  std::unordered_map<const at::TensorImpl*, std::string> own;  // parameters by their keys
  std::map<std::string, Known> known;
  for (size_t number = 0; number < models.size(); number++) {
    parallel::ParallelModel& model = *models[number];
    if (!is_in_stages(model)) continue;
    ranks_ = &model.pipeline()->ranks();
    for (const parallel::StageTensor& tensor : model.pipeline()->state()) {
      const std::string key = text(number, ":", tensor.first_name);
      if (tensor.name == tensor.first_name) known[key] = {key, known.size(), &tensor};
      if (tensor.placement->boxes.empty()) continue;
      own.try_emplace(nn::find_tensor(*model.module(), tensor.name).unsafeGetTensorImpl(), key);
    }
  }
  // The groups of all ranks, each in the order of the whole model.
  std::map<std::string, size_t> numbers;
  auto keys = tree::new_list();
  size_t next = 0;
  for (const optim::ParameterGroup& group : optimizer.groups()) {
    auto of_group = tree::new_list();
    std::vector<size_t>& own_numbers = own_groups_.emplace_back();
    for (const at::Tensor& parameter : group.parameters) {
      own_numbers.push_back(next);
      const auto found = own.find(parameter.unsafeGetTensorImpl());
      if (found != own.end()) {
        of_group.push_back(found->second);
        numbers[found->second] = next;
      } else {
        require(parameter.is_meta(), Status::kUnsupported,
                "the optimizer has parameters of models in stages and of others; expected an optimizer for each");
      }
      next++;
    }
    keys.push_back(of_group);
  }
  const c10::IValue all = comm::gather_object(*ranks_, tree::new_list({keys}));
  for (size_t group = 0; group < own_groups_.size(); group++) {
    std::set<std::string> of_group;
    for (const c10::IValue& rank : tree::sequence_items(all)) {
      require(tree::sequence_items(rank).size() == own_groups_.size(), Status::kInvalidState,
              "the optimizer has other numbers of groups on other ranks of the pipeline; expected the same");
      for (const c10::IValue& key : tree::sequence_items(tree::sequence_items(rank)[group]))
        of_group.insert(key.toStringRef());
    }
    std::vector<Known> ordered;
    for (const std::string& key : of_group) ordered.push_back(known.at(key));
    std::sort(ordered.begin(), ordered.end(),
              [](const Known& one, const Known& other) { return one.order < other.order; });
    std::vector<Parameter>& parameters = groups_.emplace_back();
    for (const Known& each : ordered) {
      const auto number = numbers.find(each.key);
      parameters.push_back(
          {each.key, each.tensor, number == numbers.end() ? std::nullopt : std::optional(number->second)});
    }
  }
}

c10::IValue StageNumbers::to_whole(const c10::IValue& own) const {
  std::map<size_t, c10::IValue> entries;  // by the number of this rank
  if (const c10::IValue* const state = tree::find_member(own, "state"))
    for (const auto& entry : state->toGenericDict()) entries[number_of(entry.key())] = entry.value();
  auto described = tree::new_map();
  for (const auto& group : groups_)
    for (const Parameter& parameter : group)
      if (parameter.own && entries.count(*parameter.own) > 0)
        described.insert(parameter.key, describe(entries.at(*parameter.own)));
  const c10::IValue all = comm::gather_object(*ranks_, tree::new_list({described}));
  std::map<std::string, c10::IValue> of_ranks;
  for (const c10::IValue& rank : tree::sequence_items(all))
    for (const auto& entry : rank.toGenericDict()) of_ranks.emplace(entry.key().toStringRef(), entry.value());
  auto state = tree::new_map();
  std::vector<std::vector<size_t>> numbers;
  size_t next = 0;
  for (const auto& group : groups_) {
    std::vector<size_t>& of_group = numbers.emplace_back();
    for (const Parameter& parameter : group) {
      const auto key = static_cast<int64_t>(next);
      const auto found = of_ranks.find(parameter.key);
      if (parameter.own && entries.count(*parameter.own) > 0)
        state.insert(key, entries.at(*parameter.own));
      else if (found != of_ranks.end())
        state.insert(key, without_elements(found->second, parameter.tensor->placement));
      of_group.push_back(next++);
    }
  }
  return renumbered(own, state, numbers);
}

c10::IValue StageNumbers::to_own(const c10::IValue& whole) const {
  std::map<size_t, c10::IValue> entries;
  if (const c10::IValue* const state = tree::find_member(whole, "state"))
    for (const auto& entry : state->toGenericDict()) entries[number_of(entry.key())] = entry.value();
  auto state = tree::new_map();
  size_t next = 0;
  for (const auto& group : groups_)
    for (const Parameter& parameter : group) {
      const auto found = entries.find(next++);
      if (parameter.own && found != entries.end()) state.insert(static_cast<int64_t>(*parameter.own), found->second);
    }
  return renumbered(whole, state, own_groups_);
}

}  // namespace accel::accelerator
