// SPDX-License-Identifier: Apache-2.0
// Section 12: loading, dispatch and offload of models.
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "accelerator/ranks.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "base/text_ends.hpp"
#include "bigmodel/aligned_module.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "bigmodel/device_map/device_place.hpp"
#include "bigmodel/device_map/infer_device_map.hpp"
#include "bigmodel/layerwise_casting.hpp"
#include "bigmodel/load_and_dispatch.hpp"
#include "bigmodel/module_tensor.hpp"
#include "bigmodel/offload_folder.hpp"
#include "bigmodel/streams/batch_schedule.hpp"
#include "bigmodel/streams/offload_chain.hpp"
#include "bigmodel/streams/weight_stream.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/options.hpp"
#include "capi/calls/scope.hpp"
#include "capi/generated/options/big_model.hpp"
#include "capi/models/device.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/tensor_list.hpp"
#include "capi/values/value.hpp"
#include "checkpoint/formats/model_files.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "nn/module_walks.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype.hpp"
#include "tensor/file_memory.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

bool is_absent(const accel_value_t* value) { return value == nullptr || value->kind == ACCEL_VALUE_NONE; }

std::optional<bigmodel::DeviceMap> read_hand_made_map(const accel_value_t* map) {
  if (is_absent(map)) return std::nullopt;
  return bigmodel::read_device_map(to_ivalue(*map, "device_map"), "device_map");
}

struct ChosenMap {
  std::optional<bigmodel::DeviceMap> map;
  std::optional<int64_t> main_bytes;  // what the map was made for; a map by hand has no such limit
};

// With the memory that the named ways of making one fill.
ChosenMap choose_map(const nn::Module& model, const accel_value_t* map, const accel_value_t* max_memory,
                     const DispatchSettings& settings) {
  if (is_absent(map)) return {};
  bigmodel::DeviceMapOptions wanted;
  wanted.no_split_module_classes = settings.no_split_module_classes;
  if (settings.dtype.value)
    wanted.dtype = tensor::dtype_name(tensor::dtype_from_number(static_cast<int32_t>(*settings.dtype.value)));
  wanted.offload_buffers = settings.offload_buffers;
  const c10::IValue given = to_ivalue(*map, "device_map");
  std::optional<bigmodel::MaxMemory> memory;
  if (!is_absent(max_memory)) memory = bigmodel::read_max_memory(to_ivalue(*max_memory, "max_memory"), "max_memory");
  ChosenMap chosen{bigmodel::resolve_device_map(given, model, memory, wanted), std::nullopt};
  if (!given.isString()) return chosen;
  std::string main_place = settings.main_device;
  for (auto entry = chosen.map->begin(); main_place.empty() && entry != chosen.map->end(); ++entry)
    if (bigmodel::is_accelerator(entry->second)) main_place = entry->second;
  for (const auto& [place, bytes] : memory ? *memory : bigmodel::available_memory())
    if (place == main_place && bytes < static_cast<double>(INT64_MAX)) chosen.main_bytes = static_cast<int64_t>(bytes);
  return chosen;
}

const bigmodel::DeviceMap* pointer_to(const std::optional<bigmodel::DeviceMap>& map) { return map ? &*map : nullptr; }

// The state whose ranks get the weights: `state`, a parameter beside the options, or that of the options; may be null.
accel_state_t* state_of(accel_state_t* state, const accel_dispatch_options_t* options) {
  accel_state_t* const option = given_options(options, "options").state;
  if (state != nullptr) check(state, "state");
  if (option != nullptr) check(option, "options.state");
  require(state == nullptr || option == nullptr || state == option, Status::kInvalidArgument,
          "state and options.state are two states; expected one of them, or the same");
  return state == nullptr ? option : state;
}

nn::NamedTensors read_weights(accel_state_t* state, const std::string& path, const DispatchSettings& settings) {
  if (!settings.broadcast_from_rank0) return checkpoint::load_state_dict(path);
  require(state != nullptr, Status::kInvalidArgument,
          "broadcast_from_rank0 is set and options.state is NULL; expected the state whose ranks get the weights");
  accelerator::Accelerator& accelerator = *accelerator_of(state);
  const std::shared_ptr<comm::Communicator> communicator = accelerator.state().communicator();
  nn::NamedTensors weights;
  checkpoint::run_on_all_ranks(accelerator::ranks_of(accelerator.state(), *communicator, false), [&] {
    if (communicator->rank() == 0) weights = checkpoint::load_state_dict(path);
    return std::string();
  });
  return bigmodel::broadcast_weights(*communicator, weights);
}

c10::IValue report_of(const nn::LoadReport& report) {
  auto map = tree::new_map();
  map.insert("missing", list_of_names(report.missing));
  map.insert("unexpected", list_of_names(report.unexpected));
  return map;
}

c10::IValue report_of(const bigmodel::Dispatch& dispatch) {
  auto map = tree::new_map();
  map.insert("device_map", bigmodel::value_of(dispatch.map()));
  map.insert("main_device", c10::IValue(dispatch.main_device()));
  auto blocks = tree::new_list();
  bigmodel::BlockStream::Statistics statistics;
  if (dispatch.stream() != nullptr) {
    statistics = dispatch.stream()->statistics();
    for (const bigmodel::Block& block : dispatch.stream()->blocks()) {
      auto entry = tree::new_map();
      entry.insert("module", block.path);
      entry.insert("bytes", block.bytes);
      blocks.push_back(entry);
    }
  }
  map.insert("blocks", blocks);
  map.insert("offloaded_bytes", dispatch.offloaded_bytes());
  map.insert("passes", statistics.passes);
  map.insert("brought_bytes", statistics.brought_bytes);
  map.insert("peak_bytes", statistics.peak_bytes);
  map.insert("wait_seconds", statistics.wait_seconds);
  return map;
}

std::vector<std::vector<at::Tensor>> read_groups(const c10::IValue& lists) {
  require(tree::is_sequence(lists), Status::kTypeMismatch, "groups is a ", tree::kind_name(lists),
          "; expected a list of lists of tensors");
  std::vector<std::vector<at::Tensor>> groups;
  for (const c10::IValue& list : tree::sequence_items(lists)) {
    require(tree::is_sequence(list), Status::kTypeMismatch, "groups[", groups.size(), "] is a ", tree::kind_name(list),
            "; expected a list of tensors");
    std::vector<at::Tensor>& group = groups.emplace_back();
    for (const c10::IValue& tensor : tree::sequence_items(list)) {
      require(tensor.isTensor() && tensor.toTensor().defined(), Status::kTypeMismatch, "groups[", groups.size() - 1,
              "] has a ", tree::kind_name(tensor), "; expected tensors");
      group.push_back(tensor.toTensor());
    }
  }
  return groups;
}

// A device with its number, where offloaded weights are used.
c10::Device execution_device(const accel_device_t* given) {
  c10::Device device = to_device(given);
  if (!device.is_cpu() && !device.has_index()) device.set_index(0);
  return device;
}

std::optional<c10::Device> given_device(const accel_device_t* device) {
  if (device == nullptr) return std::nullopt;
  return execution_device(device);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_load_checkpoint_in_model(accel_module_t* module, const char* checkpoint,
                                                             const accel_value_t* device_map,
                                                             const accel_dispatch_options_t* options,
                                                             accel_value_t* out_report) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    const std::string path = check_pointer(checkpoint, "checkpoint");
    const DispatchSettings settings = read_settings(options, "options");
    const std::optional<bigmodel::DeviceMap> map = read_hand_made_map(device_map);
    const nn::NamedTensors weights = read_weights(state_of(nullptr, options), path, settings);
    const nn::LoadReport report = bigmodel::load_checkpoint_in_model(model, weights, pointer_to(map), settings);
    if (out_report != nullptr) write_output(out_report, from_ivalue(report_of(report)));
  });
}

ACCEL_FUNCTION accel_status_t accel_load_checkpoint_and_dispatch(
    accel_state_t* state, accel_module_t* module, const char* checkpoint, const accel_value_t* device_map,
    const accel_value_t* max_memory, const accel_dispatch_options_t* options, accel_value_t* out_device_map) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    const std::string path = check_pointer(checkpoint, "checkpoint");
    const DispatchSettings settings = read_settings(options, "options");
    accel_state_t* const ranks = state_of(state, options);
    const auto [map, main_bytes] = choose_map(model, device_map, max_memory, settings);
    const nn::NamedTensors weights = read_weights(ranks, path, settings);
    bigmodel::load_checkpoint_and_dispatch(model, weights, pointer_to(map), settings, main_bytes);
    if (out_device_map != nullptr)
      write_output(out_device_map, from_ivalue(map ? bigmodel::value_of(*map) : c10::IValue()));
  });
}

ACCEL_FUNCTION accel_status_t accel_dispatch_model(accel_module_t* module, const accel_value_t* device_map,
                                                   const accel_value_t* state_dict,
                                                   const accel_dispatch_options_t* options) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    check_pointer(device_map, "device_map");
    const DispatchSettings settings = read_settings(options, "options");
    const std::optional<bigmodel::DeviceMap> map = read_hand_made_map(device_map);
    require(map.has_value(), Status::kInvalidArgument, "device_map is NONE; expected a map path -> place");
    const nn::NamedTensors offloaded =
        is_absent(state_dict) ? nn::NamedTensors() : read_named_tensors(*state_dict, "state_dict");
    bigmodel::dispatch_model(model, *map, offloaded, settings);
  });
}

ACCEL_FUNCTION accel_status_t accel_cpu_offload(accel_module_t* module, const accel_device_t* device,
                                                const accel_value_t* state_dict,
                                                const accel_dispatch_options_t* options) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    const DispatchSettings settings = read_settings(options, "options");
    std::optional<nn::NamedTensors> weights;
    if (!is_absent(state_dict)) weights = read_named_tensors(*state_dict, "state_dict");
    bigmodel::cpu_offload(model, given_device(device), settings, weights ? &*weights : nullptr);
  });
}

ACCEL_FUNCTION accel_status_t accel_disk_offload(accel_module_t* module, const char* offload_folder,
                                                 const accel_device_t* device,
                                                 const accel_dispatch_options_t* options) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    const std::string folder = check_pointer(offload_folder, "offload_folder");
    bigmodel::disk_offload(model, folder, given_device(device), read_settings(options, "options"));
  });
}

ACCEL_FUNCTION accel_status_t accel_remove_dispatch(accel_module_t* module, int32_t recurse) {
  return guarded(__func__, [&] {
    const nn::ModulePtr top = check(module, "module").module;
    std::vector<nn::ModulePtr> modules{top};
    if (read_flag(recurse, "recurse"))
      for (const auto& [path, below] : nn::named_modules(*top))
        if (!path.empty()) modules.push_back(top->find(path));
    for (const nn::ModulePtr& one : modules)
      if (const std::shared_ptr<bigmodel::Dispatch> dispatch = bigmodel::Dispatch::of(*one)) dispatch->remove(*one);
  });
}

ACCEL_FUNCTION accel_status_t accel_dispatch_report(const accel_module_t* module, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const std::shared_ptr<bigmodel::Dispatch> dispatch = bigmodel::Dispatch::of(*check(module, "module").module);
    return from_ivalue(dispatch == nullptr ? c10::IValue() : report_of(*dispatch));
  });
}

ACCEL_FUNCTION accel_status_t accel_has_offloaded_params(const accel_module_t* module, int32_t* out) {
  return guarded(__func__, out, [&] {
    return static_cast<int32_t>(bigmodel::has_offloaded_parameters(*check(module, "module").module));
  });
}

ACCEL_FUNCTION accel_status_t accel_align_module_device_begin(accel_module_t* module, const accel_device_t* device,
                                                              accel_scope_t** out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr& aligned = check(module, "module").module;
    std::optional<c10::Device> goal;
    if (device != nullptr) goal = to_device(device);
    return open_scope<bigmodel::AlignedModule>(aligned, goal);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_call_batches(accel_module_t* module, const accel_value_t* inputs,
                                                        size_t n_batches, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    nn::Module& model = *check(module, "module").module;
    const std::vector<c10::IValue> batches = to_ivalues(inputs, n_batches, "inputs");
    for (size_t i = 0; i < batches.size(); i++)
      require(tree::is_sequence(batches[i]), Status::kTypeMismatch, "inputs[", i, "] is a ",
              tree::kind_name(batches[i]), "; expected the list of a batch's inputs");
    std::vector<c10::IValue> outputs(batches.size());
    std::vector<std::function<void()>> bodies;
    for (size_t i = 0; i < batches.size(); i++)
      bodies.emplace_back([&, i] { outputs[i] = model.call(tree::sequence_items(batches[i]).vec()); });
    const std::shared_ptr<bigmodel::Dispatch> dispatch = bigmodel::Dispatch::of(model);
    bigmodel::BatchSchedule::run(bodies, dispatch == nullptr ? c10::Device(c10::kCPU) : dispatch->main_device());
    return from_ivalue(tree::new_list(std::move(outputs)));
  });
}

ACCEL_FUNCTION accel_status_t accel_cpu_offload_with_hook(accel_module_t* module, const accel_device_t* device,
                                                          accel_offload_hook_t* previous, accel_offload_hook_t** out) {
  return guarded(__func__, out, [&] {
    const nn::ModulePtr& model = check(module, "module").module;
    const std::shared_ptr<bigmodel::OffloadHook> former =
        previous == nullptr ? nullptr : check(previous, "previous").hook;
    return bigmodel::OffloadHook::add(model, execution_device(device), former);
  });
}

ACCEL_FUNCTION accel_status_t accel_offload_hook_offload(accel_offload_hook_t* hook) {
  return guarded(__func__, [&] { check(hook, "hook").hook->offload(); });
}

ACCEL_FUNCTION accel_status_t accel_offload_hook_remove(accel_offload_hook_t* hook) {
  return guarded(__func__, [&] { check(hook, "hook").hook->remove(); });
}

ACCEL_FUNCTION accel_offload_hook_t* accel_offload_hook_retain(accel_offload_hook_t* hook) {
  return retain_handle(__func__, hook, "hook");
}

ACCEL_FUNCTION void accel_offload_hook_release(accel_offload_hook_t* hook) { release_handle(hook); }

ACCEL_FUNCTION accel_status_t accel_attach_layerwise_casting(accel_module_t* module, accel_dtype_t storage_dtype,
                                                             accel_dtype_t compute_dtype, const char* patterns,
                                                             const char* classes) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    bigmodel::attach_layerwise_casting(
        model, {tensor::dtype_from_number(storage_dtype), tensor::dtype_from_number(compute_dtype),
                split_text(optional_text(patterns).value_or("")), split_text(optional_text(classes).value_or(""))});
  });
}

ACCEL_FUNCTION accel_status_t accel_set_module_tensor_to_device(accel_module_t* module, const char* name,
                                                                const accel_device_t* device, accel_tensor_t* value,
                                                                accel_dtype_t dtype) {
  return guarded(__func__, [&] {
    nn::Module& model = *check(module, "module").module;
    const std::string path = check_pointer(name, "name");
    const at::Tensor values = value == nullptr ? at::Tensor() : check(value, "value").tensor;
    std::optional<at::ScalarType> wanted;
    if (is_given(dtype)) wanted = tensor::dtype_from_number(dtype);
    bigmodel::set_module_tensor(model, path, to_device(device), values, wanted);
  });
}

ACCEL_FUNCTION accel_status_t accel_offload_state_dict(const char* folder, const accel_value_t* state_dict) {
  return guarded(__func__, [&] {
    const std::string path = check_pointer(folder, "folder");
    bigmodel::offload_state_dict(path, read_named_tensors(*check_pointer(state_dict, "state_dict"), "state_dict"));
  });
}

ACCEL_FUNCTION accel_status_t accel_offloaded_weights(const char* folder,
                                                      const accel_offloaded_weights_options_t* options,
                                                      accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const OffloadedWeightsSettings settings = read_settings(options, "options");
    const accel_value_t* const in_memory = given_options(options, "options").state_dict;
    require(folder != nullptr || !settings.index.value.empty() || !is_absent(in_memory), Status::kInvalidArgument,
            "folder is NULL, and the options have neither a state_dict nor an index; expected one of the three");
    bigmodel::OffloadedWeightsPlace place;
    place.folder = optional_text(folder).value_or("");
    if (!settings.index.value.empty()) place.index = settings.index.value;
    place.prefix = settings.prefix;
    if (!settings.device.value.empty()) {
      place.device = bigmodel::device_of_place(settings.device);
      require(place.device.has_value(), Status::kInvalidArgument,
              "device is 'disk'; expected the CPU or an accelerator");
    }
    auto map = tree::new_map();
    if (!is_absent(in_memory))
      for (const auto& [name, tensor] : read_named_tensors(*in_memory, "options.state_dict"))
        if (starts_with(name, place.prefix)) map.insert(name.substr(place.prefix.size()), tensor);
    for (const auto& [name, tensor] : bigmodel::open_offloaded_weights(place))
      if (!map.contains(name)) map.insert(name, tensor);
    return from_ivalue(map);
  });
}

ACCEL_FUNCTION accel_status_t accel_read_ahead(accel_tensor_t* const* tensors, size_t n_tensors) {
  return guarded(__func__, [&] {
    for (const at::Tensor& tensor : read_tensors(tensors, n_tensors, "tensors")) tensor::read_ahead(tensor);
  });
}

ACCEL_FUNCTION accel_status_t accel_extract_submodules_state_dict(const accel_value_t* state_dict, const char* modules,
                                                                  accel_value_t* out) {
  return guarded(__func__, out, [&] {
    check_pointer(state_dict, "state_dict");
    const std::vector<std::string> paths = split_text(check_pointer(modules, "modules"));
    auto part = tree::new_map();
    for (const auto& [name, tensor] : read_named_tensors(*state_dict, "state_dict"))
      if (bigmodel::is_below_any(name, paths)) part.insert(name, tensor);
    return from_ivalue(part);
  });
}

ACCEL_FUNCTION accel_status_t accel_weight_stream_create(const accel_value_t* groups, const accel_device_t* device,
                                                         int64_t prefetch_bytes, accel_weight_stream_t** out) {
  return guarded(__func__, out, [&] {
    const c10::IValue lists = to_ivalue(*check_pointer(groups, "groups"), "groups");
    std::optional<int64_t> prefetch;
    if (is_given(prefetch_bytes)) prefetch = prefetch_bytes;
    require(!prefetch || *prefetch >= 0, Status::kInvalidArgument, "prefetch_bytes is ", prefetch_bytes,
            "; expected 0 or more");
    const c10::Device goal = execution_device(device);
    tensor::require_device(goal);
    return std::make_shared<bigmodel::WeightStream>(read_groups(lists), goal, prefetch);
  });
}

ACCEL_FUNCTION accel_status_t accel_weight_stream_begin_use(accel_weight_stream_t* stream, int64_t group,
                                                            accel_value_t* out) {
  return guarded(__func__, out, [&] {
    auto list = tree::new_list();
    for (const at::Tensor& tensor : check(stream, "stream").stream->begin_use(group)) list.push_back(tensor);
    return from_ivalue(list);
  });
}

ACCEL_FUNCTION accel_status_t accel_weight_stream_end_use(accel_weight_stream_t* stream, int64_t group) {
  return guarded(__func__, [&] { check(stream, "stream").stream->end_use(group); });
}

ACCEL_FUNCTION accel_status_t accel_weight_stream_end_pass(accel_weight_stream_t* stream) {
  return guarded(__func__, [&] { check(stream, "stream").stream->end_pass(); });
}

ACCEL_FUNCTION accel_weight_stream_t* accel_weight_stream_retain(accel_weight_stream_t* stream) {
  return retain_handle(__func__, stream, "stream");
}

ACCEL_FUNCTION void accel_weight_stream_release(accel_weight_stream_t* stream) { release_handle(stream); }

}  // namespace accel::capi
