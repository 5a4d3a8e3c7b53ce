// SPDX-License-Identifier: Apache-2.0
// Describes the NVIDIA GPUs of this machine without a library of NVIDIA, and without starting one.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace accel::launch {

struct NvidiaGpu {
  std::string address;  // "0000:8d:00.0", as in /proc/driver/nvidia/gpus
  std::string model;
  std::string compute_capability;  // "9.0"
};

// Reads what `nvidia-smi --query-gpu=pci.bus_id,name,compute_cap --format=csv,noheader` prints. Lines of another form
// are left out.
std::vector<NvidiaGpu> parse_nvidia_gpus(const std::string& printed);
// Whether tensor cores of this capability compute in 8-bit floating point: from 8.9 on.
bool has_fp8(const std::string& compute_capability);

// Keys of each GPU: "model", "address" or else "file", "memory_node", "compute_capability" and "fp8", as far as they
// are known.
Json nvidia_gpus();

}  // namespace accel::launch
