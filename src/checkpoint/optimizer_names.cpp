// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/optimizer_names.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr std::string_view kWrappers[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."};
constexpr const char* kStatesKey = "state";
constexpr const char* kGroupsKey = "param_groups";
constexpr const char* kParametersKey = "params";

class Numbering {
 public:
  Numbering(const c10::IValue& state, const std::vector<NamedGroup>& groups, const std::string& source)
      : groups_(groups), source_(source), saved_groups_(tree::find_member(state, kGroupsKey)->toListRef()) {
    for (size_t i = 0; i < saved_groups_.size(); i++) {
      const c10::IValue* const names = tree::find_member(saved_groups_[i], kParametersKey);
      require(names != nullptr && tree::is_sequence(*names), Status::kCorrupt, "'", source_, "': group ", i,
              " of the optimizer lists no parameters");
      for (const c10::IValue& name : tree::sequence_items(*names)) {
        require(name.isString(), Status::kCorrupt, "'", source_, "': group ", i, " of the optimizer lists a ",
                tree::kind_name(name), "; expected names of parameters");
        group_of_.emplace(unwrapped_name(name.toStringRef()), i);
      }
    }
    const c10::IValue* const states = tree::find_member(state, kStatesKey);
    if (states == nullptr) {  // one without any
      require(state.toGenericDict().size() == 1, Status::kCorrupt, "'", source_, "' has no '", kStatesKey,
              "' beside the groups of the optimizer, and other members");
      return;
    }
    require(states->isGenericDict(), Status::kCorrupt, "'", source_, "' has states of parameters that are not a map");
    for (const auto& member : states->toGenericDict())
      if (member.key().isString()) states_.emplace(unwrapped_name(member.key().toStringRef()), member.value());
  }

  c10::IValue numbered() {
    require(saved_groups_.size() == groups_.size(), Status::kInvalidState, "'", source_, "' has ", saved_groups_.size(),
            " groups of parameters, and the optimizer has ", groups_.size(),
            "; prepare the same objects as when it was saved");
    std::vector<std::pair<c10::IValue, c10::IValue>> states;
    auto groups = tree::new_list();
    int64_t number = 0;
    for (const NamedGroup& group : groups_) {
      const size_t saved = saved_group_of(group, groups.size());
      auto numbers = tree::new_list();
      for (const NamedParameter& parameter : group) {
        const std::string* const name = saved_name_of(parameter, saved);
        if (name != nullptr)
          if (const auto found = states_.find(*name); found != states_.end())
            states.emplace_back(number, found->second);
        numbers.push_back(number++);
      }
      auto changed = tree::new_map();
      for (const auto& member : saved_groups_[saved].toGenericDict())
        if (!member.key().isString() || member.key().toStringRef() != kParametersKey)
          changed.insert(member.key(), member.value());
      changed.insert(kParametersKey, numbers);
      groups.push_back(changed);
    }
    for (const auto& [name, unused] : states_)
      require(group_of_.count(name) > 0, Status::kInvalidState, "'", source_, "' has a state of '", name,
              "', which is in no group of the optimizer that was saved");
    for (const auto& [name, group] : group_of_)
      require(group == kTaken, Status::kInvalidState, "'", source_, "' has the state of '", name,
              "', which no group of the optimizer has in its place; prepare the same objects as when it was saved");
    auto result = tree::new_map();
    result.insert(kStatesKey, tree::new_map(std::move(states)));
    result.insert(kGroupsKey, groups);
    return result;
  }

 private:
  static constexpr size_t kTaken = ~size_t{0};

  // The group that was saved of the first parameter that was: groups may have been saved in another order.
  size_t saved_group_of(const NamedGroup& group, size_t index) const {
    for (const NamedParameter& parameter : group)
      for (const std::string& name : parameter.names)
        if (const auto found = group_of_.find(name); found != group_of_.end() && found->second != kTaken)
          return found->second;
    return index;
  }

  // The name under which it was saved. Null for a frozen one that was not; other names of it are none that are missing.
  const std::string* saved_name_of(const NamedParameter& parameter, size_t group) {
    const std::string* saved = nullptr;
    for (const std::string& name : parameter.names) {
      const auto found = group_of_.find(name);
      if (found == group_of_.end() || found->second != group) continue;
      found->second = kTaken;
      if (saved == nullptr || states_.count(*saved) == 0) saved = &found->first;
    }
    require(saved != nullptr || parameter.is_frozen, Status::kInvalidState, "'", source_, "' has no parameter '",
            parameter.names.empty() ? "(of no prepared model)" : parameter.names.front(), "' in group ", group,
            " of the optimizer; prepare the same objects as when it was saved");
    return saved;
  }

  const std::vector<NamedGroup>& groups_;
  const std::string& source_;
  c10::ArrayRef<c10::IValue> saved_groups_;
  std::unordered_map<std::string, size_t> group_of_;  // of each name, until a parameter has taken it
  std::unordered_map<std::string, c10::IValue> states_;
};

}  // namespace

std::string unwrapped_name(std::string name) {
  for (const std::string_view wrapper : kWrappers)
    for (size_t at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper, at))
      if (at == 0 || name[at - 1] == '.')
        name.erase(at, wrapper.size());
      else
        at++;
  return name;
}

c10::IValue with_unwrapped_names(const c10::IValue& tensors) {
  if (!tensors.isGenericDict()) return tensors;
  auto map = tree::new_map();
  for (const auto& member : tensors.toGenericDict())
    map.insert(member.key().isString() ? c10::IValue(unwrapped_name(member.key().toStringRef())) : member.key(),
               member.value());
  return map;
}

c10::IValue with_names_of(const c10::IValue& own, const c10::IValue& tensors) {
  if (!tensors.isGenericDict()) return tensors;
  std::unordered_map<std::string, std::string> names;
  for (const auto& member : own.toGenericDict()) {
    const std::string& name = member.key().toStringRef();
    names.emplace(unwrapped_name(name), name);
  }
  auto map = tree::new_map();
  for (const auto& member : tensors.toGenericDict()) {
    const auto known = member.key().isString() ? names.find(member.key().toStringRef()) : names.end();
    map.insert(known == names.end() ? member.key() : c10::IValue(known->second), member.value());
  }
  return map;
}

bool is_by_names(const c10::IValue& state) {
  const c10::IValue* const groups = tree::find_member(state, kGroupsKey);
  if (groups == nullptr || !groups->isList()) return false;
  const auto items = groups->toListRef();
  return std::any_of(items.begin(), items.end(), [](const c10::IValue& group) {
    const c10::IValue* const names = tree::find_member(group, kParametersKey);
    return names != nullptr && tree::is_sequence(*names) && !tree::sequence_items(*names).empty() &&
           tree::sequence_items(*names).front().isString();
  });
}

c10::IValue named_optimizer_state(const c10::IValue& state, const std::vector<NamedGroup>& groups) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  const auto saved_groups = tree::find_member(state, kGroupsKey)->toListRef();
  auto named_groups = tree::new_list();
  for (size_t i = 0; i < groups.size(); i++) {
    auto own = tree::new_list();
    for (const NamedParameter& parameter : groups[i]) {
      require(!parameter.names.empty(), Status::kInvalidState, "parameter ", names.size(),
              " of the optimizer is of no prepared model, so that it has no name; prepare its model");
      names.push_back(parameter.names.front());
      own.push_back(names.back());
      require(known.insert(names.back()).second, Status::kInvalidState, "two parameters of the optimizer are called '",
              names.back(),
              "' in their models, and these files know them by their names; expected one model, or "
              "accel_save_state()");
    }
    auto group = saved_groups[i].toGenericDict().copy();
    group.insert_or_assign(kParametersKey, own);
    named_groups.push_back(group);
  }
  auto states = tree::new_map();
  for (const auto& member : tree::find_member(state, kStatesKey)->toGenericDict())
    states.insert(names.at(static_cast<size_t>(member.key().toInt())), member.value());
  auto named = tree::new_map();
  named.insert(kStatesKey, states);
  named.insert(kGroupsKey, named_groups);
  return named;
}

c10::IValue numbered_optimizer_state(const c10::IValue& state, const std::vector<NamedGroup>& groups,
                                     const std::string& source) {
  return Numbering(state, groups, source).numbered();
}

}  // namespace accel::checkpoint
