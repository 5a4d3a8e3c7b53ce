// SPDX-License-Identifier: Apache-2.0
// Which backend sends the tensors of which device, in c10d's notation: "cpu:ucx,sim:staged". A name without a device is
// for the CPU.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>
#include <vector>

namespace accel::comm {

// Names besides those of the plugins libaccel_NAME.so:
constexpr char kStaged[] = "staged";         // through host memory and ucx
constexpr char kOfDevice[] = "accelerator";  // of the plugin that registered the device

struct BackendName {
  c10::DeviceType device;
  std::string name;
};

// In the same order, in which they are created: one that is staged shares the connections of the CPU's before it.
std::vector<BackendName> parse_backend_names(const std::string& names);

// The backends of a state on such a device: that of the CPU, and the device's own one, or kStaged if it has none.
// `given` names others, of which each replaces the one of its device, that of the state where it names none;
// kInvalidArgument for one that cannot be meant, of no plugin, or the second of a device.
std::string choose_backends(c10::DeviceType device, const std::string& given = "");

// The devices whose tensors are staged: "sim". Empty if there are none.
std::string staged_devices(const std::string& names);

}  // namespace accel::comm
