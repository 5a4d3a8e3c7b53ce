// SPDX-License-Identifier: Apache-2.0
#include "accelerator/replicas/replica_items.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "accelerator/prepared_objects.hpp"
#include "accelerator/prepared_optimizer.hpp"
#include "base/error.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using Names = std::unordered_map<const at::TensorImpl*, std::string>;

// A number by its bits, so that NaN equals itself.
std::string bits_of(const c10::IValue& value) {
  if (value.isString()) return value.toStringRef();
  if (value.isInt()) return text("int ", value.toInt());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isDouble()) {
    const double number = value.toDouble();
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    return text("double ", bits);
  }
  return tree::kind_name(value);
}

// Whether ranks keep the parameter equal. Sharding does not average the gradients of modules that it ignores, and no
// gradients of a model that only evaluates are exchanged.
bool is_kept_equal(parallel::ParallelModel& model, const at::Tensor& parameter, const nn::Placements& placements) {
  const bool is_sharded = model.parts() != nullptr;
  return !is_sharded || !parameter.requires_grad() || placements.find(parameter) != nullptr;
}

bool is_trained(const ModelEntry& entry, parallel::ParallelModel& model) {
  return entry.of_application != nullptr || model.exchange() != nullptr;
}

std::string key_text(const c10::IValue& key) { return key.isString() ? key.toStringRef() : text(key.toInt()); }

// The members by their keys, because ranks may have added them in another order; numbers as numbers.
std::vector<std::pair<std::string, c10::IValue>> members_in_order(const c10::IValue& map) {
  std::vector<std::pair<std::string, c10::IValue>> members;
  for (const auto& member : map.toGenericDict()) members.emplace_back(key_text(member.key()), member.value());
  std::stable_sort(members.begin(), members.end(), [](const auto& one, const auto& other) {
    const auto digits = [](const std::string& key) {
      return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    if (digits(one.first) && digits(other.first) && one.first.size() != other.first.size())
      return one.first.size() < other.first.size();
    return one.first < other.first;
  });
  return members;
}

void add_values(const c10::IValue& value, const std::string& path, const std::string& owner,
                std::vector<ReplicaItem>& items) {
  if (value.isGenericDict()) {
    for (const auto& [key, member] : members_in_order(value))
      add_values(member, tree::path_below(path, key), owner, items);
  } else if (tree::is_sequence(value)) {
    size_t index = 0;
    for (const c10::IValue& item : tree::sequence_items(value))
      add_values(item, tree::path_below(path, text(index++)), owner, items);
  } else if (value.isTensor()) {
    items.push_back({text("'", path, "' of ", owner), value.toTensor()});
  } else {
    items.push_back({text("'", path, "' of ", owner), {}, bits_of(value)});
  }
}

// The states of parameters whose names are known: others are not kept equal.
void add_optimizer(const optim::Optimizer& optimizer, const std::string& which, const Names& names,
                   std::vector<ReplicaItem>& items) {
  const c10::IValue state = optimizer.state_dict();  // outlives its members
  const c10::IValue* const of_parameters = tree::find_member(state, "state");
  if (of_parameters == nullptr || !of_parameters->isGenericDict()) return;
  const std::vector<at::Tensor> parameters = optimizer.parameters();
  for (const auto& [key, entries] : members_in_order(*of_parameters)) {
    const auto index = static_cast<size_t>(std::strtoull(key.c_str(), nullptr, 10));
    const auto known = index < parameters.size() ? names.find(parameters[index].unsafeGetTensorImpl()) : names.end();
    if (known != names.end()) add_values(entries, "", known->second + which, items);
  }
}

}  // namespace

std::vector<ReplicaItem> replica_items(const PreparedObjects& prepared) {
  std::vector<ReplicaItem> items;
  Names names;
  for (size_t i = 0; i < prepared.models.size(); i++) {
    const parallel::ParallelModelPtr model = prepared.models[i].parallel();
    model->finish_step();
    if (!is_trained(prepared.models[i], *model)) continue;
    const nn::Placements placements = nn::placements(*model->module());
    for (const auto& [name, parameter] : nn::named_parameters(*model->module())) {
      if (!is_kept_equal(*model, parameter, placements)) continue;
      std::string shown = text("parameter '", name, "'");
      if (prepared.models.size() > 1) shown += text(" of model ", i);
      if (names.emplace(parameter.unsafeGetTensorImpl(), shown).second) items.push_back({std::move(shown), parameter});
    }
  }
  for (size_t i = 0; i < prepared.optimizers.size(); i++)
    add_optimizer(*prepared.optimizers[i], prepared.optimizers.size() > 1 ? text(" in optimizer ", i) : "", names,
                  items);
  return items;
}

}  // namespace accel::accelerator
