// SPDX-License-Identifier: Apache-2.0
// Settings of all simulated devices, from environment variables and simulated_device_configure().
#pragma once

#include <cstddef>
#include <string>

#include "simulated_device.h"

namespace simulated_device {

constexpr int kMaxDevices = 8;
constexpr size_t kAddressSpace = size_t{8} << 30;  // bytes of addresses of one device, the largest memory

simulated_device_settings settings();
// Throws std::invalid_argument.
void set_settings(const simulated_device_settings& settings);
// The environment's, or the default.
std::string device_name_setting();

}  // namespace simulated_device
