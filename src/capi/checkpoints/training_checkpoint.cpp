// SPDX-License-Identifier: Apache-2.0
// Section 13 of accel.h: training states, and the project that they belong to.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/version.hpp"
#include "capi/generated/options/checkpoint.hpp"
#include "capi/training/state_callbacks.hpp"
#include "capi/values/value.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

// Owns user_data from its beginning on.
accelerator::RegisteredObject registered_object(const char* name, const Callback<accel_save_state_fn>& save_callback,
                                                accel_save_state_fn save, accel_load_state_fn load) {
  require(save != nullptr && load != nullptr, Status::kInvalidArgument, "save or load is NULL; expected two functions");
  accelerator::RegisteredObject object;
  object.name = name;
  object.save = save_function(save_callback);
  object.load = load_function(save_callback.with(load));
  return object;
}

// A hook may take models out of the list, and replace the weights of one that is saved.
bool may_replace(const c10::IValue& model, const c10::IValue& replacement) {
  if (replacement.isNone()) return true;
  return model.isInt() ? replacement.isInt() && replacement.toInt() == model.toInt()
                       : model.isGenericDict() && replacement.isGenericDict();
}

void run_hook(const Callback<accel_checkpoint_hook_fn>& callback, std::vector<c10::IValue>& models,
              const std::string& folder) {
  accel_value_t given = from_ivalue(tree::new_list(models));
  const DisposeValue given_disposed(given);
  accel_value_t result = ACCEL_VALUE_INIT;
  const DisposeValue result_disposed(result);
  callback.checked("hook", &given, folder.c_str(), &result);
  if (result.kind == ACCEL_VALUE_NONE) return;
  const c10::IValue replaced = to_ivalue(result, "out_models");
  require(replaced.isList() && replaced.toListRef().size() == models.size(), Status::kTypeMismatch,
          "out_models of a hook is a ", tree::kind_name(replaced), "; expected a list with an item for each of ",
          models.size(), " models");
  for (size_t i = 0; i < models.size(); i++) {
    const c10::IValue& replacement = replaced.toListRef()[i];
    require(may_replace(models[i], replacement), Status::kTypeMismatch, "out_models[", i, "] of a hook is a ",
            tree::kind_name(replacement), "; expected what models has there, or NONE");
    models[i] = replacement;
  }
}

using AddHook = int64_t (accelerator::TrainingCheckpoints::*)(accelerator::CheckpointHook);

accel_status_t register_hook(const char* function, accel_state_t* state, AddHook add, accel_checkpoint_hook_fn hook,
                             void* user_data, accel_destroy_fn destroy, int64_t* out_id) {
  return guarded(function, [&] {
    const Callback<accel_checkpoint_hook_fn> callback(hook, user_data, destroy);  // owns user_data from here on
    accelerator::TrainingCheckpoints& checkpoints = accelerator_of(state)->checkpoints();
    check_pointer(hook, "hook");
    const int64_t id = (checkpoints.*add)([callback](std::vector<c10::IValue>& models, const std::string& folder) {
      run_hook(callback, models, folder);
    });
    if (out_id != nullptr) *out_id = id;
  });
}

c10::IValue text_or_none(const std::string& text) { return text.empty() ? c10::IValue() : c10::IValue(text); }

}  // namespace

ACCEL_FUNCTION accel_status_t accel_set_project(accel_state_t* state, const accel_project_options_t* options) {
  return guarded(__func__, [&] {
    checkpoint::Project& project = accelerator_of(state)->projects().project();
    const ProjectSettings given = given_settings(check_pointer(options, "options"), "options");
    ProjectSettings settings = project.settings();
    ProjectSettings::for_each(
        [](const OptionField& /*field*/, auto& current, const auto& given_one) {
          if (!given_one.is_default()) current = given_one;
        },
        settings, given);
    project.set(std::move(settings));
  });
}

ACCEL_FUNCTION accel_status_t accel_project(const accel_state_t* state, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    const ProjectSettings& settings = accelerator.projects().project().settings();
    const std::string& project_dir = settings.project_dir;
    const std::string& logging_dir = settings.logging_dir;
    const std::optional<int64_t>& limit = settings.total_limit;
    c10::impl::GenericDict fields = tree::new_map();
    fields.insert(std::string("project_dir"), text_or_none(project_dir));
    fields.insert(std::string("logging_dir"), text_or_none(logging_dir.empty() ? project_dir : logging_dir));
    fields.insert(std::string("total_limit"), limit ? c10::IValue(*limit) : c10::IValue());
    fields.insert(std::string("iteration"), settings.iteration.value);
    fields.insert(std::string("automatic_checkpoint_naming"), settings.automatic_checkpoint_naming.value);
    fields.insert(std::string("save_on_each_node"), settings.save_on_each_node.value);
    fields.insert(std::string("checkpoint"), text_or_none(accelerator.projects().last_checkpoint()));
    fields.insert(std::string("agreed_checkpoint"), text_or_none(accelerator.projects().agreed_checkpoint()));
    const bool names = settings.automatic_checkpoint_naming && !project_dir.empty();
    fields.insert(std::string("next_checkpoint"),
                  text_or_none(names ? accelerator.projects().project().next_folder() : ""));
    return from_ivalue(fields);
  });
}

ACCEL_FUNCTION accel_status_t accel_save_state(accel_state_t* state, const char* folder,
                                               const accel_save_state_options_t* options) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    checkpoint::SaveOptions save{read_settings(options, "options")};
    save.library = library_version();
    accelerator->projects().save_checkpoint(optional_text(folder), std::move(save));
  });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_wait(accel_state_t* state, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    require(timeout_ms >= 0, Status::kInvalidArgument, "timeout_ms is ", timeout_ms, "; expected 0 or more");
    require(accelerator->projects().wait_for_checkpoint(std::chrono::milliseconds(timeout_ms)), Status::kTimeout,
            "the asynchronous save is still under way after ", timeout_ms, " ms; wait longer");
  });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_progress(const accel_state_t* state, int64_t* out_written,
                                                        int64_t* out_total) {
  return guarded(__func__, [&] {
    const auto progress = accelerator_of(state)->projects().checkpoint_progress();
    check_pointer(out_written, "out_written");
    *check_pointer(out_total, "out_total") = progress.is_busy ? std::max<int64_t>(progress.total, 1) : 0;
    *out_written = progress.is_busy ? progress.written : 0;
  });
}

ACCEL_FUNCTION accel_status_t accel_load_state(accel_state_t* state, const char* folder,
                                               const accel_load_state_options_t* options) {
  return guarded(__func__, [&] {
    const auto& accelerator = accelerator_of(state);
    accelerator->projects().load_checkpoint(optional_text(folder), {read_settings(options, "options")});
  });
}

ACCEL_FUNCTION accel_status_t accel_register_for_checkpointing(accel_state_t* state, const char* name,
                                                               accel_save_state_fn save, accel_load_state_fn load,
                                                               void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_save_state_fn> callback(save, user_data, destroy);  // owns user_data from here on
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    require(name == nullptr || *name != '\0', Status::kInvalidArgument, "name is empty; expected one, or NULL");
    accelerator.checkpoints().register_for_checkpointing(
        registered_object(name == nullptr ? "" : name, callback, save, load));
  });
}

ACCEL_FUNCTION accel_status_t accel_register_random_state(accel_state_t* state, const char* name,
                                                          accel_save_state_fn save, accel_load_state_fn load,
                                                          void* user_data, accel_destroy_fn destroy) {
  return guarded(__func__, [&] {
    const Callback<accel_save_state_fn> callback(save, user_data, destroy);  // owns user_data from here on
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    accelerator.checkpoints().register_random_state(
        registered_object(check_pointer(name, "name"), callback, save, load));
  });
}

ACCEL_FUNCTION accel_status_t accel_register_save_state_pre_hook(accel_state_t* state, accel_checkpoint_hook_fn hook,
                                                                 void* user_data, accel_destroy_fn destroy,
                                                                 int64_t* out_id) {
  return register_hook(__func__, state, &accelerator::TrainingCheckpoints::add_save_hook, hook, user_data, destroy,
                       out_id);
}

ACCEL_FUNCTION accel_status_t accel_register_load_state_pre_hook(accel_state_t* state, accel_checkpoint_hook_fn hook,
                                                                 void* user_data, accel_destroy_fn destroy,
                                                                 int64_t* out_id) {
  return register_hook(__func__, state, &accelerator::TrainingCheckpoints::add_load_hook, hook, user_data, destroy,
                       out_id);
}

ACCEL_FUNCTION accel_status_t accel_remove_checkpoint_hook(accel_state_t* state, int64_t id) {
  return guarded(__func__, [&] { accelerator_of(state)->checkpoints().remove_checkpoint_hook(id); });
}

}  // namespace accel::capi
