// Section 13 of accel.h: files of tensors.
#include <ATen/core/Dict.h>

#include <string>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "capi/value.hpp"
#include "checkpoint/safetensors.hpp"

namespace accel::capi {
namespace {

c10::impl::GenericDict check_map(const c10::IValue& value, const char* name) {
  require(value.isGenericDict(), Status::kTypeMismatch, name, " is a ", value.tagKind(), "; expected a map");
  return value.toGenericDict();
}

checkpoint::NamedTensors to_tensors(const accel_value_t& value) {
  checkpoint::NamedTensors tensors;
  for (const auto& entry : check_map(to_ivalue(value, "tensors"), "tensors")) {
    require(entry.value().isTensor(), Status::kTypeMismatch, "tensors['", entry.key().toStringRef(), "'] is a ",
            entry.value().tagKind(), "; expected a tensor");
    tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

checkpoint::Metadata to_metadata(const accel_value_t* value) {
  checkpoint::Metadata metadata;
  if (value == nullptr) return metadata;
  for (const auto& entry : check_map(to_ivalue(*value, "metadata"), "metadata")) {
    require(entry.value().isString(), Status::kTypeMismatch, "metadata['", entry.key().toStringRef(), "'] is a ",
            entry.value().tagKind(), "; expected a string");
    metadata.emplace_back(entry.key().toStringRef(), entry.value().toStringRef());
  }
  return metadata;
}

c10::IValue to_map(const checkpoint::NamedTensors& tensors) {
  c10::impl::GenericDict map(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [name, tensor] : tensors) map.insert(name, tensor);
  return map;
}

void save_tensors(const accel_value_t& tensors, const accel_value_t* metadata, const char* path) {
  checkpoint::SafetensorsContents contents = checkpoint::drop_tied(to_tensors(tensors));
  for (auto& entry : to_metadata(metadata)) {
    for (const auto& [tied, first] : contents.metadata)
      require(entry.first != tied, Status::kInvalidArgument, "metadata has '", tied,
              "', which is the name of a tensor that is the same as '", first, "'; expected another key");
    contents.metadata.push_back(std::move(entry));
  }
  checkpoint::save_safetensors(path, contents.tensors, contents.metadata);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_save(const accel_value_t* tensors, const accel_value_t* metadata,
                                         const char* path) {
  return guarded(__func__, [&] {
    check_pointer(tensors, "tensors");
    check_pointer(path, "path");
    save_tensors(*tensors, metadata, path);
  });
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
    check_pointer(path, "path");
    c10::impl::GenericDict map(c10::StringType::get(), c10::AnyType::get());
    for (const auto& [name, text] : checkpoint::load_safetensors(path).metadata) map.insert(name, text);
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_load(const char* path, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    checkpoint::SafetensorsContents contents = checkpoint::load_safetensors(path);
    checkpoint::restore_tied(contents);
    return from_ivalue(to_map(contents.tensors));
  });
}

}  // namespace accel::capi
