// Section 13 of accel.h: files of tensors.
#include <string>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/named_tensors.hpp"
#include "capi/options.hpp"
#include "capi/value.hpp"
#include "checkpoint/formats/safetensors.hpp"

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

void save_tensors(const accel_value_t& tensors, const accel_value_t* metadata, const char* path) {
  const auto contents = checkpoint::drop_tied(read_named_tensors(tensors, "tensors"), read_metadata(metadata));
  checkpoint::save_safetensors(path, contents.tensors, contents.metadata);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_save(const accel_value_t* tensors, const accel_value_t* metadata,
                                         const char* path) {
  return guarded(__func__,
                 [&] { save_tensors(*check_pointer(tensors, "tensors"), metadata, check_pointer(path, "path")); });
}

ACCEL_FUNCTION accel_status_t accel_save_on_main_process(accel_state_t* state, const accel_value_t* tensors,
                                                         const accel_value_t* metadata, const char* path,
                                                         int32_t save_on_each_node) {
  return guarded(__func__, [&] {
    const state::State& engine = accelerator_of(state)->state();
    check_pointer(tensors, "tensors");
    check_pointer(path, "path");
    const bool each_node = read_flag(save_on_each_node, "save_on_each_node");
    const bool writes = each_node ? engine.is_local_main_process() : engine.is_main_process();
    if (writes) save_tensors(*tensors, metadata, path);
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

ACCEL_FUNCTION accel_status_t accel_load(const char* path, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    checkpoint::SafetensorsContents contents = checkpoint::load_safetensors(check_pointer(path, "path"));
    checkpoint::restore_tied(contents);
    return from_ivalue(map_of(contents.tensors));
  });
}

}  // namespace accel::capi
