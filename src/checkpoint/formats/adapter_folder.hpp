// SPDX-License-Identifier: Apache-2.0
// Adapter folder: an adapter in the format of PEFT (https://huggingface.co/docs/peft/developer_guides/checkpoint),
// "adapter_config.json" and "adapter_model.safetensors".
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/adapters/adapters.hpp"
#include "nn/module.hpp"

namespace accel::checkpoint {

// A LoraConfig of PEFT. Fields that describe only where it was made are not looked at; those that would change what the
// adapter computes, and are not known here, are errors.
nn::LoraConfig read_adapter_config(const Json& config, const std::string& source);
// With the names of its layers in place of "all-linear": all of them, which this rank's part of a model may lack.
Json adapter_config(const nn::Module& model, const std::string& name, const std::vector<std::string>& layers);

void save_adapter(const nn::Module& model, const std::string& name, const std::string& folder);
// With the values of a state dict of the model.
void save_adapter(const nn::Module& model, const std::string& name, const std::string& folder,
                  const nn::NamedTensors& state);
// Adds the adapter and makes it the only active one. Returns the names of its layers. Nothing is left in the model if
// the folder does not fit it.
std::vector<std::string> load_adapter(nn::Module& model, const std::string& name, const std::string& folder);

}  // namespace accel::checkpoint
