// SPDX-License-Identifier: Apache-2.0
// Reads what NVIDIA's driver says about itself and its GPUs from files, which needs no library of NVIDIA.
#pragma once

#include <string>

namespace accel {

// The driver's version if it has several GPUs of the RTX 40 series that it cannot copy between, although it says so
// (all versions before 550.40.07); empty otherwise, and where there is no such driver. `folder`: where the driver's
// files are.
std::string driver_without_peer_copies(const std::string& folder = "/proc/driver/nvidia");

}  // namespace accel
