// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/fp8_state.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "accelerator/forward_precision.hpp"
#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "nn/low_precision/fp8_layers.hpp"
#include "precision/fp8_recipe.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using precision::name_of;

constexpr const char* kScaling = "scaling";
constexpr const char* kFormat = "format";
constexpr const char* kHistories = "histories";

std::string text_of(const c10::IValue& saved, const char* key) {
  const c10::IValue* const value = tree::find_member(saved, key);
  require(value != nullptr && value->isString(), Status::kCorrupt, "the saved recipe of fp8 lacks '", key, "'");
  return value->toStringRef();
}

void require_same_recipe(const c10::IValue& saved, const precision::Fp8Recipe& recipe) {
  const std::string scaling = text_of(saved, kScaling), format = text_of(saved, kFormat);
  require(scaling == name_of(recipe.scaling) && format == name_of(recipe.format), Status::kInvalidArgument,
          "the checkpoint was trained in fp8 with scaling ", scaling, " and format ", format, ", and this model has ",
          name_of(recipe.scaling), " and ", name_of(recipe.format),
          "; expected accel_set_fp8() with the recipe of the checkpoint, or its weights alone by "
          "accel_load_model()");
}

}  // namespace

Fp8State::Fp8State(const std::vector<ModelEntry>& models) {
  for (const ModelEntry& entry : models) {
    const auto prepared = entry.prepared.lock();
    models_.push_back(prepared == nullptr ? nullptr : prepared->precision().fp8);
  }
}

bool Fp8State::empty() const {
  return std::all_of(models_.begin(), models_.end(), [](const auto& layers) { return layers == nullptr; });
}

c10::IValue Fp8State::state_dict() const {
  auto saved = tree::new_list();
  for (const auto& layers : models_) {
    if (layers == nullptr) {
      saved.push_back({});
      continue;
    }
    auto of_model = tree::new_map();
    of_model.insert(kScaling, name_of(layers->recipe().scaling));
    of_model.insert(kFormat, name_of(layers->recipe().format));
    if (layers->histories() != nullptr) of_model.insert(kHistories, layers->histories()->state_dict());
    saved.push_back(of_model);
  }
  return saved;
}

void Fp8State::load_state_dict(const c10::IValue& state) { load_states_of_ranks({state}, 0); }

void Fp8State::check_states_of_ranks(const std::vector<c10::IValue>& states) const {
  for (const c10::IValue& state : states) {
    require(state.isList() && state.toListRef().size() == models_.size(), Status::kCorrupt,
            "the saved recipes of fp8 are of another number of models");
    for (size_t i = 0; i < models_.size(); i++)
      if (models_[i] != nullptr && !state.toListRef()[i].isNone())
        require_same_recipe(state.toListRef()[i], models_[i]->recipe());
  }
}

void Fp8State::load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
  check_states_of_ranks(states);
  for (size_t i = 0; i < models_.size(); i++) {
    if (models_[i] == nullptr || models_[i]->histories() == nullptr) continue;
    std::vector<c10::IValue> histories;
    for (const c10::IValue& state : states)
      if (const c10::IValue* const saved = tree::find_member(state.toListRef()[i], kHistories))
        histories.push_back(*saved);
    if (!histories.empty()) models_[i]->histories()->load_states(histories);
  }
}

}  // namespace accel::accelerator
