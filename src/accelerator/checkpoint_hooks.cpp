#include "accelerator/checkpoint_hooks.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

c10::IValue list_of(const CheckpointHooks::Models& models) {
  auto list = tree::new_list();
  for (const c10::IValue& model : models) list.push_back(model);
  return list;
}

bool is_replacement(CheckpointHooks::When when, const c10::IValue& before, const c10::IValue& after) {
  if (after.isNone()) return true;
  if (before.isNone()) return false;
  return when == CheckpointHooks::When::kSave ? after.isGenericDict()
                                              : after.isInt() && after.toInt() == before.toInt();
}

}  // namespace

int64_t CheckpointHooks::add(When when, Hook hook) {
  entries_.push_back({next_id_, when, std::move(hook)});
  return next_id_++;
}

bool CheckpointHooks::remove(int64_t id) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [id](const Entry& entry) { return entry.id == id; });
  if (found == entries_.end()) return false;
  entries_.erase(found);
  return true;
}

bool CheckpointHooks::empty(When when) const {
  return std::none_of(entries_.begin(), entries_.end(), [when](const Entry& entry) { return entry.when == when; });
}

CheckpointHooks::Models CheckpointHooks::run(When when, Models models, const std::string& folder) const {
  const std::vector<Entry> entries = entries_;  // a hook may remove itself
  for (const Entry& entry : entries) {
    if (entry.when != when) continue;
    const c10::IValue result = entry.hook(list_of(models), folder);
    if (result.isNone()) continue;
    require(result.isList() && result.toListRef().size() == models.size(), Status::kTypeMismatch,
            "a hook of checkpoints returned a ", tree::kind_name(result), "; expected a list with an item for each of ",
            models.size(), " models");
    Models replaced(result.toListRef().begin(), result.toListRef().end());
    for (size_t i = 0; i < models.size(); i++)
      require(is_replacement(when, models[i], replaced[i]), Status::kTypeMismatch, "a hook of checkpoints returned a ",
              tree::kind_name(replaced[i]), " for model ", i,
              when == When::kSave ? "; expected its weights or NONE" : "; expected its number or NONE");
    models = std::move(replaced);
  }
  return models;
}

}  // namespace accel::accelerator
