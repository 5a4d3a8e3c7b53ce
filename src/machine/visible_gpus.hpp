// SPDX-License-Identifier: Apache-2.0
// The NVIDIA GPUs that processes started here may use, from what the driver says in files: no library of NVIDIA is
// needed.
#pragma once

#include <string>
#include <vector>

namespace accel::launch {

inline constexpr char kVisibleGpus[] = "CUDA_VISIBLE_DEVICES";

// Their addresses on the PCI bus, "0000:3b:00.0", in the order of the bus, which is the driver's for GPUs of one kind.
// `ids`: those to use as the variable has them, numbers or "GPU-..."; "all": all. An entry that is not understood ends
// the list, as it does for the driver. `root`: "" for the system's files.
std::vector<std::string> visible_gpus(const std::string& ids, const std::string& root = "");

// The value of the variable, or "all".
std::string visible_gpu_ids();

}  // namespace accel::launch
