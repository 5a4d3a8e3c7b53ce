// Section 13 of accel.h: files of tensors.
#include <ATen/core/Dict.h>

#include <string>

#include "accel.h"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
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

}  // namespace

ACCEL_FUNCTION accel_status_t accel_save(const accel_value_t* tensors, const accel_value_t* metadata,
                                         const char* path) {
  return guarded(__func__, [&] {
    check_pointer(tensors, "tensors");
    check_pointer(path, "path");
    checkpoint::save_safetensors(path, to_tensors(*tensors), to_metadata(metadata));
    return ACCEL_OK;
  });
}

ACCEL_FUNCTION accel_status_t accel_load(const char* path, accel_value_t* out) {
  return guarded(__func__, [&] {
    check_pointer(path, "path");
    check_pointer(out, "out");
    give(out, to_map(checkpoint::load_safetensors(path).tensors));
    return ACCEL_OK;
  });
}

}  // namespace accel::capi
