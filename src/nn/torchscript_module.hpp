// Models that Python saved with torch.jit.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace accel::nn {

// Its parameters, buffers and submodules appear as ours, on the CPU. Calls run the saved forward.
ModulePtr load_torchscript(const std::string& path);

}  // namespace accel::nn
