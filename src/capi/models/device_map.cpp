// SPDX-License-Identifier: Apache-2.0
// Section 12: sizes of models and device maps.
#include "bigmodel/device_map/device_map.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/infer_device_map.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/device_map.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value.hpp"
#include "nn/module_sizes.hpp"
#include "nn/tied_parameters.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

nn::Module& model_of(const accel_module_t* module) { return *check(module, "module").module; }

std::vector<std::pair<std::string, std::string>> read_special_dtypes(const accel_value_t* value) {
  std::vector<std::pair<std::string, std::string>> dtypes;
  if (value == nullptr || value->kind == ACCEL_VALUE_NONE) return dtypes;
  const c10::IValue map = to_ivalue(*value, "options.special_dtypes");
  require(map.isGenericDict(), Status::kTypeMismatch, "options.special_dtypes is a ", tree::kind_name(map),
          "; expected a map from names of tensors to names of dtypes");
  for (const auto& entry : map.toGenericDict()) {
    require(entry.key().isString() && entry.value().isString(), Status::kTypeMismatch,
            "options.special_dtypes has an entry that is not text; expected names of tensors and of dtypes");
    dtypes.emplace_back(entry.key().toStringRef(), entry.value().toStringRef());
  }
  return dtypes;
}

bigmodel::DeviceMapOptions read_map_options(const accel_device_map_options_t* options) {
  return {read_settings(options, "options"), read_special_dtypes(given_options(options, "options").special_dtypes)};
}

std::optional<bigmodel::MaxMemory> read_memory(const accel_value_t* value) {
  if (value == nullptr || value->kind == ACCEL_VALUE_NONE) return std::nullopt;
  return bigmodel::read_max_memory(to_ivalue(*value, "max_memory"), "max_memory");
}

bigmodel::DeviceMap read_map(const accel_value_t* value) {
  return bigmodel::read_device_map(to_ivalue(*check_pointer(value, "device_map"), "device_map"), "device_map");
}

c10::IValue list_of_groups(const nn::TiedGroups& groups) {
  auto list = tree::new_list();
  for (const auto& group : groups) list.push_back(list_of_names(group));
  return list;
}

nn::TiedGroups read_groups(const accel_value_t* value) {
  const c10::IValue list = to_ivalue(*check_pointer(value, "tied_params"), "tied_params");
  const auto require_list = [](const c10::IValue& given) {
    require(tree::is_sequence(given), Status::kTypeMismatch, "tied_params has a ", tree::kind_name(given),
            "; expected a list of lists of names");
  };
  require_list(list);
  nn::TiedGroups groups;
  for (const c10::IValue& group : tree::sequence_items(list)) {
    require_list(group);
    groups.emplace_back();
    for (const c10::IValue& name : tree::sequence_items(group)) {
      require(name.isString(), Status::kTypeMismatch, "tied_params has a ", tree::kind_name(name),
              " in a group; expected names of parameters");
      groups.back().push_back(name.toStringRef());
    }
  }
  return groups;
}

c10::IValue value_of_sizes(const nn::ModuleSizes& sizes) {
  auto map = tree::new_map();
  for (const auto& [name, bytes] : sizes) map.insert(name, bigmodel::value_of_bytes(bytes));
  return map;
}

c10::IValue value_of_explanation(const bigmodel::InferredDeviceMap& inferred) {
  auto minimums = tree::new_map();
  for (const auto& [place, bytes] : inferred.minimum_memory) minimums.insert(place, bigmodel::value_of_bytes(bytes));
  auto map = tree::new_map();
  map.insert("decisions", inferred.explanation.decisions);
  map.insert("text", inferred.explanation.text);
  map.insert("minimum_memory", minimums);
  map.insert("offloaded_buffers", bigmodel::value_of_bytes(inferred.offloaded_buffers));
  map.insert("buffers_may_not_fit", inferred.buffers_may_not_fit);
  return map;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_convert_file_size_to_int(const char* size, int64_t* out) {
  return guarded(__func__, out, [&] { return parse_byte_size(check_pointer(size, "size")); });
}

ACCEL_FUNCTION accel_status_t accel_compute_module_sizes(const accel_module_t* module,
                                                         const accel_device_map_options_t* options,
                                                         int32_t buffers_only, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const bool only = read_flag(buffers_only, "buffers_only");
    return from_ivalue(
        value_of_sizes(nn::compute_module_sizes(model_of(module), read_map_options(options).size_rules(), only)));
  });
}

ACCEL_FUNCTION accel_status_t accel_get_module_leaves(const accel_value_t* sizes, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const c10::IValue map = to_ivalue(*check_pointer(sizes, "sizes"), "sizes");
    require(map.isGenericDict(), Status::kTypeMismatch, "sizes is a ", tree::kind_name(map),
            "; expected a map from names to bytes");
    nn::ModuleSizes names;
    for (const auto& entry : map.toGenericDict()) {
      require(entry.key().isString(), Status::kTypeMismatch, "sizes has a key that is not text; expected names");
      names.emplace_back(entry.key().toStringRef(), 0);
    }
    return from_ivalue(list_of_names(nn::module_leaves(names)));
  });
}

ACCEL_FUNCTION accel_status_t accel_get_max_layer_size(const accel_module_t* module,
                                                       const accel_device_map_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::Module& model = model_of(module);
    const bigmodel::DeviceMapOptions map_options = read_map_options(options);
    const nn::LargestLayer layer =
        nn::largest_layer(model, nn::compute_module_sizes(model, map_options.size_rules()), map_options.classes());
    auto map = tree::new_map();
    map.insert("size", bigmodel::value_of_bytes(layer.bytes));
    map.insert("names", list_of_names(layer.names));
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_named_module_tensors(const accel_module_t* module, int32_t include_buffers,
                                                         int32_t recurse, int32_t remove_non_persistent,
                                                         accel_value_t* out) {
  return guarded(__func__, out, [&] {
    nn::TensorSelection selection;
    selection.include_buffers = read_flag(include_buffers, "include_buffers");
    selection.recurse = read_flag(recurse, "recurse");
    selection.remove_non_persistent = read_flag(remove_non_persistent, "remove_non_persistent");
    return from_ivalue(map_of(nn::named_module_tensors(model_of(module), selection)));
  });
}

ACCEL_FUNCTION accel_status_t accel_get_non_persistent_buffers(const accel_module_t* module, int32_t recurse,
                                                               accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const bool below_too = read_flag(recurse, "recurse");
    return from_ivalue(list_of_names(nn::non_persistent_buffers(model_of(module), below_too)));
  });
}

ACCEL_FUNCTION accel_status_t accel_find_tied_parameters(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out,
                 [&] { return from_ivalue(list_of_groups(nn::find_tied_parameters(model_of(module)))); });
}

ACCEL_FUNCTION accel_status_t accel_retie_parameters(accel_module_t* module, const accel_value_t* tied_params) {
  return guarded(__func__, [&] {
    nn::Module& model = model_of(module);
    nn::retie_parameters(model, read_groups(tied_params));
  });
}

ACCEL_FUNCTION accel_status_t accel_check_tied_parameters_on_same_device(const accel_value_t* tied_params,
                                                                         const accel_value_t* device_map,
                                                                         accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(device_map, "device_map");
    const nn::TiedGroups groups = read_groups(tied_params);
    return from_ivalue(list_of_groups(bigmodel::tied_in_several_places(groups, read_map(device_map))));
  });
}

ACCEL_FUNCTION accel_status_t accel_get_max_memory(const accel_value_t* max_memory, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const std::optional<bigmodel::MaxMemory> given = read_memory(max_memory);
    return from_ivalue(bigmodel::value_of(given ? *given : bigmodel::available_memory()));
  });
}

ACCEL_FUNCTION accel_status_t accel_get_balanced_memory(const accel_module_t* module, const accel_value_t* max_memory,
                                                        const accel_device_map_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::Module& model = model_of(module);
    return from_ivalue(
        bigmodel::value_of(bigmodel::balanced_memory(model, read_memory(max_memory), read_map_options(options))));
  });
}

ACCEL_FUNCTION accel_status_t accel_infer_auto_device_map(const accel_module_t* module, const accel_value_t* max_memory,
                                                          const accel_device_map_options_t* options, accel_value_t* out,
                                                          accel_value_t* out_explanation) {
  return guarded(__func__, [&] {
    const nn::Module& model = model_of(module);
    check_pointer(out, "out");
    const bigmodel::InferredDeviceMap inferred = bigmodel::infer_device_map(
        model, read_memory(max_memory), read_map_options(options), out_explanation != nullptr);
    OwnedValue map(from_ivalue(bigmodel::value_of(inferred.map)));
    if (out_explanation != nullptr) give(out_explanation, value_of_explanation(inferred));
    *out = map.release();
  });
}

ACCEL_FUNCTION accel_status_t accel_resolve_device_map(const accel_module_t* module, const accel_value_t* device_map,
                                                       const accel_value_t* max_memory,
                                                       const accel_device_map_options_t* options, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const nn::Module& model = model_of(module);
    const c10::IValue wanted = to_ivalue(*check_pointer(device_map, "device_map"), "device_map");
    return from_ivalue(bigmodel::value_of(
        bigmodel::resolve_device_map(wanted, model, read_memory(max_memory), read_map_options(options))));
  });
}

ACCEL_FUNCTION accel_status_t accel_check_device_map(const accel_module_t* module, const accel_value_t* device_map,
                                                     accel_value_t* out_unknown) {
  return guarded(__func__, [&] {
    const nn::Module& model = model_of(module);
    const std::vector<std::string> unknown = bigmodel::check_device_map(model, read_map(device_map));
    if (out_unknown != nullptr) give(out_unknown, list_of_names(unknown));
  });
}

ACCEL_FUNCTION accel_status_t accel_clean_device_map(const accel_value_t* device_map, accel_value_t* out) {
  return guarded(__func__, out,
                 [&] { return from_ivalue(bigmodel::value_of(bigmodel::clean_device_map(read_map(device_map)))); });
}

ACCEL_FUNCTION accel_status_t accel_verify_device_map(const accel_module_t* module, int32_t* out) {
  return guarded(__func__, out, [&] { return bigmodel::is_on_several_devices(model_of(module)) ? 1 : 0; });
}

}  // namespace accel::capi
