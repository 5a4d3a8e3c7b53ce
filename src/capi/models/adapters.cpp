// SPDX-License-Identifier: Apache-2.0
// Section 7: adapters of models.
#include "nn/adapters/adapters.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/prepared_model.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/adapters.hpp"
#include "capi/models/unprepared_model.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/adapter_folder.hpp"
#include "json/json.hpp"
#include "nn/adapters/adapter_scope.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"

namespace accel::capi {
namespace {

nn::Module& model_for_adapters(accel_module_t* module) {
  return unprepared_model(module, ", or accel_use_adapters_begin() to choose adapters for calls");
}

nn::AdapterNames read_adapter_names(const char* const* names, size_t n_names) {
  nn::AdapterNames read;
  const char* const* const first = check_array(names, n_names, "names");
  for (size_t i = 0; i < n_names; i++) read.emplace_back(check_pointer(first[i], "a name of names"));
  return read;
}

Json json_of_start(LoraInit start) {
  return start == LoraInit::kGaussian ? Json("gaussian") : Json(start == LoraInit::kZero);
}

const char* bias_name(LoraBias bias) {
  return bias == LoraBias::kNone ? "none" : bias == LoraBias::kAll ? "all" : "lora_only";
}

// One reader for these options and for PEFT's files.
nn::LoraConfig read_lora(const accel_lora_options_t* options) {
  const LoraSettings given = read_settings(options, "options");
  const accel_lora_options_t values = given_options(options, "options");
  Json::Members members = {{"r", Json::number(given.rank.value)},
                           {"lora_alpha", Json::number(given.alpha.value)},
                           {"lora_dropout", Json::number(given.dropout.value)},
                           {"use_rslora", Json(given.use_rslora.value)},
                           {"use_dora", Json(given.use_dora.value)},
                           {"init_lora_weights", json_of_start(given.init.value)},
                           {"bias", Json(bias_name(given.bias.value))}};
  const auto add = [&members](const char* name, const accel_value_t* value) {
    if (value != nullptr && value->kind != ACCEL_VALUE_NONE)
      members.emplace_back(name, tree::json_of(to_ivalue(*value, name), {}, name));
  };
  if (values.target_modules == nullptr || values.target_modules->kind == ACCEL_VALUE_NONE)
    members.emplace_back("target_modules", Json("all-linear"));
  add("target_modules", values.target_modules);
  add("exclude_modules", values.exclude_modules);
  add("layers_to_transform", values.layers_to_transform);
  add("layers_pattern", values.layers_pattern);
  add("rank_pattern", values.rank_pattern);
  add("alpha_pattern", values.alpha_pattern);
  add("modules_to_save", values.modules_to_save);
  return checkpoint::read_adapter_config(Json(std::move(members)), "options");
}

c10::IValue adapter_value(const nn::Module& model, const std::string& name) {
  const nn::AddedAdapter added = nn::find_adapter(model, name);
  auto map = tree::new_map();
  map.insert("active", added.is_active);
  map.insert("merged", added.is_merged);
  map.insert("layers", list_of_names(added.layers));
  map.insert("config", tree::from_json(checkpoint::adapter_config(model, name, added.layers), name));
  return map;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_module_add_adapter(accel_module_t* module, const char* name,
                                                       const accel_lora_options_t* options) {
  return guarded(__func__, [&] {
    nn::Module& model = model_for_adapters(module);
    nn::add_lora(model, check_pointer(name, "name"), read_lora(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_load_adapter(accel_module_t* module, const char* name, const char* folder) {
  return guarded(__func__, [&] {
    nn::Module& model = model_for_adapters(module);
    checkpoint::load_adapter(model, check_pointer(name, "name"), check_pointer(folder, "folder"));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_adapters(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr model = accelerator::unwrap_model(check(module, "module").module);
    auto adapters = tree::new_map();
    for (const std::string& name : nn::adapter_names(*model)) adapters.insert(name, adapter_value(*model, name));
    return from_ivalue(adapters);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_activate_adapters(accel_module_t* module, const char* const* names,
                                                             size_t n_names) {
  return guarded(__func__, [&] {
    nn::Module& model = model_for_adapters(module);
    nn::set_active_adapters(model, read_adapter_names(names, n_names));
  });
}

ACCEL_FUNCTION accel_status_t accel_module_merge_adapters(accel_module_t* module) {
  return guarded(__func__, [&] { nn::merge_adapters(*accelerator::unwrap_model(check(module, "module").module)); });
}

ACCEL_FUNCTION accel_status_t accel_module_unmerge_adapters(accel_module_t* module) {
  return guarded(__func__, [&] { nn::unmerge_adapters(*accelerator::unwrap_model(check(module, "module").module)); });
}

ACCEL_FUNCTION accel_status_t accel_module_remove_adapter(accel_module_t* module, const char* name) {
  return guarded(__func__, [&] {
    nn::Module& model = model_for_adapters(module);
    nn::remove_adapter(model, check_pointer(name, "name"));
  });
}

ACCEL_FUNCTION accel_status_t accel_use_adapters_begin(const char* const* names, size_t n_names, accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    return open_scope<nn::AdapterScope>(std::make_shared<const nn::AdapterNames>(read_adapter_names(names, n_names)));
  });
}

}  // namespace accel::capi
