// SPDX-License-Identifier: Apache-2.0
// Plugins of devices: libraries of vendors that register a device with LibTorch when they are loaded.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>

namespace accel::tensor {

// The type that LibTorch has for one device outside of its source tree.
inline constexpr c10::DeviceType kOutOfTreeType = c10::DeviceType::PrivateUse1;

// Loads libraries, whose paths are joined by colons; what is loaded already stays as it is. Nothing is ever unloaded.
// `source` names the setting in errors. kNotFound for a missing library, kUnsupported for one that cannot be loaded,
// that registers no device, or a second out-of-tree device, for which LibTorch has no place.
void load_device_plugins(const std::string& paths, const std::string& source);

// Loads those of ACCEL_DEVICE_PLUGINS, once.
void load_device_plugins_of_environment();

// The name that the out-of-tree device (kOutOfTreeType) has, empty if none is registered. Loads the
// plugins of the environment first.
const std::string& out_of_tree_name();

// The library of the plugin that registered a type of device: the handle of the dynamic linker. Null for devices that
// are LibTorch's own or were registered by the program.
void* device_library(c10::DeviceType type);

}  // namespace accel::tensor
