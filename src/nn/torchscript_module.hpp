// SPDX-License-Identifier: Apache-2.0
// TorchScript modules: models that were saved with torch.jit.
#pragma once

#include <string>

#include "config/generated/settings/module/torchscript.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Loads it with its parameters, buffers and submodules. Calls run the saved forward.
ModulePtr load_torchscript(const std::string& path, const TorchscriptSettings& settings = {});

}  // namespace accel::nn
