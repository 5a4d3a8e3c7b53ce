// TorchScript modules: models that were saved with torch.jit.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace accel::nn {

// Loads it on the CPU, with its parameters, buffers and submodules. Calls run the saved forward.
ModulePtr load_torchscript(const std::string& path);

}  // namespace accel::nn
