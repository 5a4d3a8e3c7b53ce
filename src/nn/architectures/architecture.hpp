// Models from the configuration of a Hugging Face model.
#pragma once

#include <string>

#include "nn/module.hpp"

namespace accel::nn {

// `config` is the path of a config.json, or the JSON text itself. Weights are fresh, from the default generator.
ModulePtr module_from_config(const std::string& config);

}  // namespace accel::nn
