// SPDX-License-Identifier: Apache-2.0
// Dispatch: modules compute on their devices of a map, with weights that are elsewhere until they are needed.
// @accelerate dispatch_model, cpu_offload, disk_offload, AlignDevicesHook
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/mapped_files.hpp"
#include "bigmodel/streams/block_stream.hpp"
#include "config/generated/settings/big_model/dispatch.hpp"
#include "nn/module.hpp"
#include "nn/weight_store.hpp"

namespace accel::bigmodel {

class Dispatch final : public nn::WeightStore, public std::enable_shared_from_this<Dispatch> {
 public:
  // Dispatches a model. `offloaded`: values of weights that are not in the model, by their names. Weights on disk that
  // are in the model alone are written to settings.offload_folder. Everything is checked before anything is changed.
  // `files`: what the model uses as it is mapped. `main_bytes`: what weights may take on the main device, those that
  // come and go included; nothing: as the settings say. Null if all is on one device.
  static std::shared_ptr<Dispatch> create(nn::Module& model, const DeviceMap& map, const nn::NamedTensors& offloaded,
                                          MappedFiles files, const DispatchSettings& settings,
                                          std::optional<int64_t> main_bytes = std::nullopt);
  // The dispatch of a module; null if the module is not dispatched.
  static std::shared_ptr<Dispatch> of(const nn::Module& module);

  // A module has no hooks any more, and its weights are on a device again: where they were, or on the CPU.
  void remove(nn::Module& module);

  const DeviceMap& map() const { return map_; }
  c10::Device main_device() const { return main_device_; }
  // Null if nothing is offloaded.
  const BlockStream* stream() const { return stream_.get(); }
  int64_t offloaded_bytes() const;

  at::Tensor stored(const at::Tensor& tensor) const override;
  bool is_spread() const override { return map_.size() > 1; }
  c10::Device compute_device() const override { return main_device_; }
  // Null if the tensor is not offloaded.
  std::shared_ptr<OffloadedTensor> find(const at::Tensor& tensor) const;

  // The uses of a module's forward on this thread.
  std::optional<nn::Inputs> begin(nn::Module& module, const nn::Inputs& inputs);
  std::optional<c10::IValue> end(nn::Module& module, const c10::IValue& output);

 private:
  // The work of the hooks of a module.
  struct Plan {
    bool is_root = false;
    std::optional<size_t> block;
    std::optional<c10::Device> device;  // of its inputs
    std::vector<bool> skipped;          // inputs that are not moved, by place
    std::vector<int64_t> hooks;
  };
  friend class DispatchBuilder;

  explicit Dispatch(DeviceMap map) : map_(std::move(map)) {}
  void add_hooks(nn::Module& module, Plan plan);

  DeviceMap map_;
  c10::Device main_device_{c10::kCPU};
  MappedFiles files_;
  std::shared_ptr<BlockStream> stream_;
  std::unordered_map<const at::TensorImpl*, std::shared_ptr<OffloadedTensor>> offloaded_;
  std::unordered_map<const nn::Module*, Plan> plans_;
};

}  // namespace accel::bigmodel
