// SPDX-License-Identifier: Apache-2.0
// Creates models from a Hugging Face configuration.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace accel::nn {

// `config` is the path of a config.json, or JSON text. Weights are initialised with the default generator.
ModulePtr module_from_config(const std::string& config);

}  // namespace accel::nn
