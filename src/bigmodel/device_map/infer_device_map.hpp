// Chooses where the parts of a model are kept, from their sizes and the memory of the devices.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/device_map/explanation.hpp"
#include "bigmodel/device_map/max_memory.hpp"
#include "nn/module.hpp"

namespace accel::bigmodel {

struct DeviceMapSettings {
  std::vector<std::string> no_split_module_classes;
  std::string dtype;  // in which floating weights will be loaded; empty: their own
  std::vector<std::pair<std::string, std::string>> special_dtypes;  // of single tensors, by name
  bool offload_buffers = false;                                     // buffers of offloaded modules are offloaded too
  bool fallback_allocation = false;  // an empty device gets a smaller module of those behind the one that is too large
  bool clean_result = true;
  bool verbose = false;          // decisions are written to the log
  bool optimal_packing = false;  // chain_packing.hpp
  bool without_disk = false;
  bool low_zero = false;  // of balanced memory: the first accelerator gets what the others have no room for
};

struct InferredDeviceMap {
  DeviceMap map;                                               // in the order of placement, or cleaned
  std::vector<std::pair<std::string, double>> minimum_memory;  // of devices that got nothing: bytes for a first module
  double offloaded_buffers = 0;      // bytes of the buffers of offloaded modules that stay on an accelerator
  bool buffers_may_not_fit = false;  // no accelerator has as much left
  Explanation explanation;
};

// @accelerate infer_auto_device_map
InferredDeviceMap infer_device_map(const nn::Module& model, const std::optional<MaxMemory>& max_memory,
                                   const DeviceMapSettings& settings, bool explain = false);

// A memory with which the accelerators get equal parts. If it is not given, one accelerator gets 90 % of its free
// memory.
// @accelerate get_balanced_memory
MaxMemory balanced_memory(const nn::Module& model, const std::optional<MaxMemory>& max_memory,
                          const DeviceMapSettings& settings);

// Resolves a program's device map: a map, which is checked, or the text "auto" (as "balanced"), "balanced",
// "balanced_low_0" or "sequential". kNotFound for a path that is not in the model.
DeviceMap resolve_device_map(const c10::IValue& device_map, const nn::Module& model,
                             const std::optional<MaxMemory>& max_memory, const DeviceMapSettings& settings);

}  // namespace accel::bigmodel
