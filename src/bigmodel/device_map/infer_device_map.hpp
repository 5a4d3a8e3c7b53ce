// SPDX-License-Identifier: Apache-2.0
// Chooses where the parts of a model are stored, from their sizes and the memory of the devices.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/split_text.hpp"
#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/device_map/explanation.hpp"
#include "bigmodel/device_map/max_memory.hpp"
#include "config/generated/settings/device_map/device_map.hpp"
#include "nn/module.hpp"
#include "nn/module_sizes.hpp"

namespace accel::bigmodel {

struct DeviceMapOptions : DeviceMapSettings {
  std::vector<std::pair<std::string, std::string>> special_dtypes = {};  // of single tensors, by name

  nn::SizeRules size_rules() const { return {dtype, special_dtypes}; }
  std::vector<std::string> classes() const { return split_text(no_split_module_classes.value); }  // that stay together
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
                                   const DeviceMapOptions& options, bool explain = false);

// A memory with which the accelerators get equal parts. If it is not given, one accelerator gets 90 % of its free
// memory.
// @accelerate get_balanced_memory
MaxMemory balanced_memory(const nn::Module& model, const std::optional<MaxMemory>& max_memory,
                          const DeviceMapOptions& options);

// Resolves a program's device map: a map, which is checked, or the text "auto" (as "balanced"), "balanced",
// "balanced_low_0" or "sequential". kNotFound for a path that is not in the model.
DeviceMap resolve_device_map(const c10::IValue& device_map, const nn::Module& model,
                             const std::optional<MaxMemory>& max_memory, const DeviceMapOptions& options);

}  // namespace accel::bigmodel
