// SPDX-License-Identifier: Apache-2.0
// Section 13 of accel.h: files of tensors, and of models.
#include <memory>
#include <optional>
#include <string>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/prepared_model.hpp"
#include "base/text_ends.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/load_checkpoint.hpp"
#include "bigmodel/model_folder.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/checkpoint.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "checkpoint/formats/safetensors.hpp"
#include "checkpoint/formats/value_file.hpp"
#include "nn/quantized/quantization_config.hpp"
#include "tensor/device/device.hpp"

namespace accel::capi {
namespace {

checkpoint::Metadata read_metadata(const accel_value_t* given) {
  checkpoint::Metadata metadata;
  if (given == nullptr) return metadata;
  const c10::IValue value = to_ivalue(*given, "metadata");
  require(value.isGenericDict(), Status::kTypeMismatch, "metadata is a ", tree::kind_name(value), "; expected a map");
  for (const auto& entry : value.toGenericDict()) {
    require(entry.value().isString(), Status::kTypeMismatch, "metadata['", entry.key().toStringRef(), "'] is a ",
            tree::kind_name(entry.value()), "; expected a string");
    metadata.emplace_back(entry.key().toStringRef(), entry.value().toStringRef());
  }
  return metadata;
}

void save_value(const accel_value_t& value, const accel_value_t* metadata, const char* path,
                const SaveSettings& settings) {
  checkpoint::save_value(path, to_ivalue(value, "value"), settings.safe_serialization, read_metadata(metadata));
}

// Which processes write: the main process of the job, or those of the hosts.
bool writes(accelerator::Accelerator& accelerator, const Setting<std::optional<bool>>& save_on_each_node) {
  const state::State& state = accelerator.state();
  const bool each_node =
      save_on_each_node.value.value_or(accelerator.projects().project().settings().save_on_each_node);
  return each_node ? state.is_local_main_process() : state.is_main_process();
}

// Returns whether this process writes.
bool save_weights(accel_state_t* state, const accel_module_t* module, const std::string& folder,
                  const accel_save_model_options_t* options) {
  accelerator::Accelerator& accelerator = *accelerator_of(state);
  const nn::ModulePtr& model = check(module, "module").module;
  const SaveModelSettings settings = read_settings(options, "options");
  const bool is_writer = writes(accelerator, settings.save_on_each_node);
  accelerator.files().save_model(model, folder, is_writer, settings);
  return is_writer;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_save(const accel_value_t* value, const accel_value_t* metadata, const char* path,
                                         const accel_save_options_t* options) {
  return guarded(__func__, [&] {
    save_value(*check_pointer(value, "value"), metadata, check_pointer(path, "path"),
               read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_save_on_main_process(accel_state_t* state, const accel_value_t* value,
                                                         const accel_value_t* metadata, const char* path,
                                                         const accel_save_options_t* options) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    check_pointer(value, "value");
    check_pointer(path, "path");
    const SaveSettings settings = read_settings(options, "options");
    if (writes(accelerator, settings.save_on_each_node)) save_value(*value, metadata, path, settings);
  });
}

ACCEL_FUNCTION accel_status_t accel_load_metadata(const char* path, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    auto map = tree::new_map();
    for (const auto& [name, text] : checkpoint::load_safetensors(check_pointer(path, "path")).metadata)
      map.insert(name, text);
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_load(const char* path, const accel_load_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    const LoadSettings settings = read_settings(options, "options");
    std::optional<c10::Device> device;
    if (!settings.map_location.is_default()) device = tensor::parse_device(settings.map_location.value);
    return from_ivalue(checkpoint::load_value(path, device));
  });
}

ACCEL_FUNCTION accel_status_t accel_load_state_dict(const char* path, const accel_value_t* device_map,
                                                    accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const std::string file = check_pointer(path, "path");
    if (device_map == nullptr || device_map->kind == ACCEL_VALUE_NONE)
      return from_ivalue(map_of(checkpoint::load_state_dict(file)));
    const bigmodel::DeviceMap map = bigmodel::read_device_map(to_ivalue(*device_map, "device_map"), "device_map");
    return from_ivalue(map_of(bigmodel::place_weights(checkpoint::load_state_dict(file), map)));
  });
}

ACCEL_FUNCTION accel_status_t accel_save_model(accel_state_t* state, const accel_module_t* module, const char* folder,
                                               const accel_save_model_options_t* options) {
  return guarded(__func__, [&] { save_weights(state, module, check_pointer(folder, "folder"), options); });
}

ACCEL_FUNCTION accel_status_t accel_save_model_folder(accel_state_t* state, const accel_module_t* module,
                                                      const char* source, const char* folder,
                                                      const accel_save_model_options_t* options) {
  return guarded(__func__, [&] {
    const std::string from = check_pointer(source, "source"), to = check_pointer(folder, "folder");
    // Before anything is written.
    require(!has_extension(from, ".gguf"), Status::kUnsupported, "source is '", from,
            "', a GGUF file, which has no configuration to copy; expected the folder of the model");
    nn::quantization_config(*check(module, "module").module);
    if (!save_weights(state, module, to, options)) return;
    bigmodel::copy_model_files(from, to);
    bigmodel::write_quantization_config(to, *check(module, "module").module);
  });
}

ACCEL_FUNCTION accel_status_t accel_save_adapter(accel_state_t* state, const accel_module_t* module, const char* name,
                                                 const char* folder) {
  return guarded(__func__, [&] {
    accelerator::Accelerator& accelerator = *accelerator_of(state);
    const nn::ModulePtr& model = check(module, "module").module;
    accelerator.files().save_adapter(model, check_pointer(name, "name"), check_pointer(folder, "folder"),
                                     accelerator.state().is_main_process());
  });
}

ACCEL_FUNCTION accel_status_t accel_save_fsdp_model(accel_state_t* state, const accel_module_t* module,
                                                    const char* folder, const accel_fsdp_file_options_t* options) {
  return guarded(__func__, [&] {
    accelerator_of(state)->files().save_fsdp_model(check(module, "module").module, check_pointer(folder, "folder"),
                                                   read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_load_fsdp_model(accel_state_t* state, accel_module_t* module, const char* folder,
                                                    const accel_fsdp_file_options_t* options) {
  return guarded(__func__, [&] {
    accelerator_of(state)->files().load_fsdp_model(check(module, "module").module, check_pointer(folder, "folder"),
                                                   read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_save_fsdp_optimizer(accel_state_t* state, const accel_optimizer_t* optimizer,
                                                        const char* folder, const accel_fsdp_file_options_t* options) {
  return guarded(__func__, [&] {
    accelerator_of(state)->files().save_fsdp_optimizer(
        check(optimizer, "optimizer").optimizer, check_pointer(folder, "folder"), read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_load_fsdp_optimizer(accel_state_t* state, accel_optimizer_t* optimizer,
                                                        const char* folder, const accel_fsdp_file_options_t* options) {
  return guarded(__func__, [&] {
    accelerator_of(state)->files().load_fsdp_optimizer(
        check(optimizer, "optimizer").optimizer, check_pointer(folder, "folder"), read_settings(options, "options"));
  });
}

}  // namespace accel::capi
