// SPDX-License-Identifier: Apache-2.0
// Packages of AOTInductor as modules: models that Python compiled, for inference without Python.
#pragma once

#include <string>

#include "config/generated/settings/module/package.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// In evaluation; a call runs the compiled code. Nothing of the package is loaded before all is checked that it says.
ModulePtr load_package(const std::string& path, const PackageSettings& settings = {});

}  // namespace accel::nn
