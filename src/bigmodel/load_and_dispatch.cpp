// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/load_and_dispatch.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/name_list.hpp"
#include "bigmodel/device_map/device_place.hpp"
#include "bigmodel/offload_folder.hpp"
#include "comm/collectives.hpp"
#include "nn/module_walks.hpp"
#include "nn/tied_parameters.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

std::string name_of(c10::Device device) {
  std::ostringstream name;
  name << device;
  return name.str();
}

void warn_of_unexpected(const nn::LoadReport& report) {
  if (report.unexpected.empty()) return;
  log(LogLevel::kWarning, "the checkpoint has ", list_names(report.unexpected),
      ", which the model lacks; they are left out");
}

bool has_disk(const DeviceMap& map) {
  return std::any_of(map.begin(), map.end(), [](const auto& entry) { return entry.second == "disk"; });
}

void require_folder(const DeviceMap& map, const DispatchSettings& settings, const char* purpose) {
  require(!has_disk(map) || !settings.offload_folder.value.empty(), Status::kInvalidArgument,
          "the device map has weights on disk and offload_folder is not set; expected a folder for ", purpose);
}

// Where a model computes of which nobody says it: at its first parameter.
c10::Device device_of_parameters(const nn::Module& model) {
  for (const auto& [name, parameter] : nn::named_parameters(model)) {
    require(!parameter.is_meta(), Status::kInvalidArgument, "device is NULL and '", name,
            "' is a meta tensor, which says nothing of where the model computes; expected a device");
    return parameter.device();
  }
  return c10::kCPU;
}

// One name is enough for tied tensors.
void require_all(const nn::Module& model, const nn::NamedTensors& weights) {
  std::unordered_set<std::string_view> given;
  for (const auto& [name, tensor] : weights) given.insert(name);
  const nn::NamedTensors members = model.state_dict();
  std::unordered_set<const at::TensorImpl*> found;
  for (const auto& [name, tensor] : members)
    if (given.count(name) != 0) found.insert(nn::find_tensor(model, name).unsafeGetTensorImpl());
  std::vector<std::string> lacking;
  for (const auto& [name, tensor] : members)
    if (found.count(nn::find_tensor(model, name).unsafeGetTensorImpl()) == 0) lacking.push_back(name);
  require(lacking.empty(), Status::kNotFound, "state_dict lacks ", list_names(lacking),
          ", which the model has; expected all of its weights");
}

// Adds the weights on disk from a folder; its entries for other devices may be older than the model.
void add_files(const DeviceMap& map, const std::string& folder, nn::NamedTensors& weights) {
  const DevicePlaces places(map);
  for (auto& entry : open_offload_folder(folder)) {
    const std::string* const place = places.find(entry.first);
    if (place != nullptr && *place == "disk") weights.push_back(std::move(entry));
  }
}

// Weights that other ranks sent are in memory: those on disk go to files.
void move_to_folder(const nn::Module& model, const DeviceMap& map, const std::string& folder,
                    nn::NamedTensors& offloaded) {
  const DevicePlaces places(map);
  nn::NamedTensors on_disk, others;
  for (auto& entry : offloaded) (*places.find(entry.first) == "disk" ? on_disk : others).push_back(std::move(entry));
  write_offload_folder(folder, model, on_disk, /*all=*/true);
  offloaded = std::move(others);
  add_files(map, folder, offloaded);
}

}  // namespace

nn::LoadReport load_checkpoint_in_model(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                        const DispatchSettings& settings) {
  if (map != nullptr) {
    require_folder(*map, settings, "their index");
    tied_in_several_places(nn::find_tied_parameters(model), *map);  // a warning
  }
  LoadedCheckpoint loaded = load_checkpoint(model, weights, map, c10::Device(c10::kCPU), settings);
  warn_of_unexpected(loaded.report);
  if (!loaded.offloaded.empty())
    write_offload_folder(settings.offload_folder, model, loaded.offloaded, /*all=*/settings.broadcast_from_rank0);
  watch_mapped_files(model, std::move(loaded.files));
  return loaded.report;
}

nn::LoadReport load_checkpoint_and_dispatch(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                            const DispatchSettings& settings, std::optional<int64_t> main_bytes) {
  if (map == nullptr) return load_checkpoint_in_model(model, weights, map, settings);
  if (settings.broadcast_from_rank0) require_folder(*map, settings, "those that rank 0 sends");
  const std::optional<c10::Device> main_device =
      settings.main_device.value.empty() ? std::nullopt : device_of_place(settings.main_device);
  LoadedCheckpoint loaded = load_checkpoint(model, weights, map, main_device, settings, /*needs_all=*/true);
  warn_of_unexpected(loaded.report);
  if (settings.broadcast_from_rank0 && has_disk(*map))
    move_to_folder(model, *map, settings.offload_folder, loaded.offloaded);
  MappedFiles files = loaded.files;
  if (Dispatch::create(model, *map, loaded.offloaded, std::move(files), settings, main_bytes) == nullptr)
    watch_mapped_files(model, std::move(loaded.files));
  return loaded.report;
}

void dispatch_model(nn::Module& model, const DeviceMap& map, const nn::NamedTensors& offloaded,
                    const DispatchSettings& settings) {
  nn::NamedTensors values = offloaded;
  if (has_disk(map) && !settings.offload_folder.value.empty() && has_offload_index(settings.offload_folder))
    add_files(map, settings.offload_folder, values);
  Dispatch::create(model, map, values, {}, settings);
}

void cpu_offload(nn::Module& model, std::optional<c10::Device> device, DispatchSettings settings,
                 const nn::NamedTensors* weights) {
  settings.main_device = name_of(device ? *device : device_of_parameters(model));
  if (weights != nullptr) require_all(model, *weights);
  Dispatch::create(model, {{"", "cpu"}}, weights == nullptr ? nn::NamedTensors() : *weights, {}, settings);
}

void disk_offload(nn::Module& model, const std::string& folder, std::optional<c10::Device> device,
                  DispatchSettings settings) {
  settings.main_device = name_of(device ? *device : device_of_parameters(model));
  settings.offload_folder = folder;
  dispatch_model(model, {{"", "disk"}}, {}, settings);
}

nn::NamedTensors broadcast_weights(comm::Communicator& communicator, const nn::NamedTensors& weights) {
  auto described = tree::new_list();
  for (const auto& [name, tensor] : weights)
    described.push_back(
        tree::new_tuple({name, static_cast<int64_t>(tensor::dtype_number(tensor.scalar_type())),
                         tree::new_list(std::vector<c10::IValue>(tensor.sizes().begin(), tensor.sizes().end()))}));
  const c10::IValue agreed = comm::broadcast_object_list(communicator, tree::new_list({c10::IValue(described)}), 0);
  nn::NamedTensors received;
  size_t next = 0;
  for (const c10::IValue& entry : tree::sequence_items(tree::sequence_items(agreed)[0])) {
    const auto fields = tree::sequence_items(entry);
    std::vector<int64_t> sizes;
    for (const c10::IValue& size : tree::sequence_items(fields[2])) sizes.push_back(size.toInt());
    const auto dtype = tensor::dtype_from_number(static_cast<int32_t>(fields[1].toInt()));
    const at::Tensor tensor = communicator.rank() == 0 ? weights[next++].second.contiguous()
                                                       : at::empty(sizes, at::TensorOptions().dtype(dtype));
    communicator.broadcast(tensor, 0);
    received.emplace_back(fields[0].toStringRef(), tensor);
  }
  return received;
}

}  // namespace accel::bigmodel
