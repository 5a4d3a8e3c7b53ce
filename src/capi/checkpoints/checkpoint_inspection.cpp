// SPDX-License-Identifier: Apache-2.0
// Section 13 of accel.h: looking into checkpoints.
#include "checkpoint/inspection.hpp"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/checkpoint.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/merge_weights.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

using Map = c10::impl::GenericDict;

Map map_of(const std::vector<std::pair<std::string, c10::IValue>>& members) {
  Map map = tree::new_map();
  for (const auto& [name, value] : members) map.insert(name, value);
  return map;
}

template <typename Items, typename Convert>
c10::IValue list_of(const Items& items, const Convert& convert) {
  auto list = tree::new_list();
  for (const auto& item : items) list.push_back(convert(item));
  return list;
}

c10::IValue texts(const std::vector<std::string>& items) {
  return list_of(items, [](const std::string& item) { return c10::IValue(item); });
}

c10::IValue integer(uint64_t number) { return static_cast<int64_t>(number); }

template <typename Number>
c10::IValue integer_or_none(const std::optional<Number>& number) {
  return number ? c10::IValue(int64_t{*number}) : c10::IValue();
}

c10::IValue describe_tensor(const checkpoint::TensorEntry& tensor) {
  return map_of({{"name", tensor.name},
                 {"dtype", tensor::dtype_name(tensor.dtype)},
                 {"shape", list_of(tensor.shape, [](int64_t size) { return c10::IValue(size); })}});
}

c10::IValue describe_file(const checkpoint::FileContents& file) {
  Map map = map_of({{"name", file.name}, {"bytes", integer(file.bytes)}});
  if (!file.tensors.empty()) map.insert(std::string("tensors"), list_of(file.tensors, describe_tensor));
  return map;
}

c10::IValue describe_checkpoint(const checkpoint::CheckpointSummary& one) {
  return map_of({{"path", one.path},
                 {"iteration", integer_or_none(one.iteration)},
                 {"world_size", integer_or_none(one.world_size)},
                 {"files", integer(one.files)},
                 {"bytes", integer(one.bytes)},
                 {"complete", one.complete}});
}

c10::IValue describe_manifest(const checkpoint::Manifest& manifest) {
  return map_of({{"library", manifest.library},
                 {"libtorch", manifest.libtorch},
                 {"world_size", int64_t{manifest.world_size}},
                 {"mesh", manifest.mesh},
                 {"iteration", manifest.iteration}});
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_checkpoint_verify(const char* folder, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto result = checkpoint::verify_checkpoint(check_pointer(folder, "folder"));
    return from_ivalue(map_of(
        {{"files", integer(result.files)}, {"bytes", integer(result.bytes)}, {"problems", texts(result.problems)}}));
  });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_list(const char* folder, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    return from_ivalue(list_of(checkpoint::list_checkpoints(check_pointer(folder, "folder")), describe_checkpoint));
  });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_show(const char* folder, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const std::string path = check_pointer(folder, "folder");
    const auto files = checkpoint::files_of_checkpoint(path);
    const bool has_manifest = checkpoint::has_manifest(path);
    return from_ivalue(
        map_of({{"manifest", has_manifest ? describe_manifest(checkpoint::load_manifest(path)) : c10::IValue()},
                {"files", list_of(files, describe_file)}}));
  });
}

ACCEL_FUNCTION accel_status_t accel_checkpoint_diff(const char* folder, const char* other, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const auto found = checkpoint::compare_checkpoints(check_pointer(folder, "folder"), check_pointer(other, "other"));
    return from_ivalue(map_of({{"only_in_first", texts(found.only_in_first)},
                               {"only_in_second", texts(found.only_in_second)},
                               {"different", texts(found.different)},
                               {"equal", texts(found.equal)}}));
  });
}

ACCEL_FUNCTION accel_status_t accel_merge_weights(const char* folder, const char* destination,
                                                  const accel_merge_weights_options_t* options) {
  return guarded(__func__, [&] {
    check_pointer(folder, "folder");
    check_pointer(destination, "destination");
    const MergeWeightsSettings settings = read_settings(options, "options");
    checkpoint::merge_weights(folder, destination, settings.safe_serialization, settings.remove_checkpoint_dir);
  });
}

}  // namespace accel::capi
