// SPDX-License-Identifier: Apache-2.0
// Loads the weights of a checkpoint into a model, each straight to its place of a device map.
// @accelerate load_checkpoint_in_model
#pragma once

#include <optional>
#include <string>

#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/mapped_files.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"
#include "nn/module.hpp"

namespace accel::bigmodel {

struct LoadedCheckpoint {
  nn::LoadReport report;
  // By names of the model: those on disk, and those on the CPU beside an accelerator. They are meta tensors in the
  // model, of the dtype that they are used in.
  nn::NamedTensors offloaded;
  MappedFiles files;  // whose pages tensors of the model are
};

// `weights` as checkpoint::load_state_dict() returns them. Without a map tensors keep their device, and are on the CPU
// if that was meta. Everything is checked before anything is changed; with `needs_all` also that no meta tensor is
// left. Tensors keep their identity. Of a placed tensor this rank gets its part, in the memory that it has, and reads
// no other elements.
LoadedCheckpoint load_checkpoint(nn::Module& model, const nn::NamedTensors& weights, const DeviceMap* map,
                                 std::optional<c10::Device> main_device, const DispatchSettings& settings,
                                 bool needs_all = false);

// Weights of files on the devices of a map. Those on disk, and those that the map does not name, stay as they are
// mapped.
// @accelerate load_state_dict
nn::NamedTensors place_weights(const nn::NamedTensors& weights, const DeviceMap& map);

// The dtype in which a weight is used.
at::ScalarType loaded_dtype(const std::string& name, const at::Tensor& member, const at::Tensor& weight,
                            const DispatchSettings& settings);

// Writes the index of offloaded weights; those that cannot be read from their own file as they are used get files.
// With `all` every one does: others cannot see those files, and ranks that share the folder write the same.
void write_offload_folder(const std::string& folder, const nn::Module& model, const nn::NamedTensors& offloaded,
                          bool all);

}  // namespace accel::bigmodel
