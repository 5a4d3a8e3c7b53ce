// SPDX-License-Identifier: Apache-2.0
// Adapters of a model by name: made, chosen, merged and removed in all its layers at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "nn/adapters/adapter_scope.hpp"
#include "nn/adapters/lora_targets.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// Adds the adapter to each target and makes it the only active one. Of the model nothing is trained from then on but
// active adapters, and what `config` says beside them. Returns the names of the layers. kNotFound for a name in
// modules_to_save that fits no module.
std::vector<std::string> add_lora(Module& model, const std::string& name, const LoraConfig& config);

// In the order in which they were added.
AdapterNames adapter_names(const Module& model);
AdapterNames active_adapters(const Module& model);
// Only these act, one after the other, and are trained. An error names one that the model lacks.
void set_active_adapters(Module& model, const AdapterNames& names);

// Adds the active adapters to the weights, or takes all away again. Nothing is changed unless each weight is whole and
// in memory.
void merge_adapters(Module& model);
void unmerge_adapters(Module& model);
// A state dict of the model without merged adapters.
NamedTensors without_merged_adapters(const Module& model, const NamedTensors& state);
// Removes an adapter, which is not merged.
void remove_adapter(Module& model, const std::string& name);

// With what it was added, and the names of its layers.
struct AddedAdapter {
  std::shared_ptr<const LoraConfig> config;
  std::vector<std::string> layers;
  bool is_active = false, is_merged = false;
};
AddedAdapter find_adapter(const Module& model, const std::string& name);
// The layers whose parameters of the adapter a state dict has: those of a whole model, of which this rank may have a
// part.
std::vector<std::string> adapter_layers(const std::string& name, const NamedTensors& state);
// Returns those of the names that fit modules of the model, as modules_to_save needs them.
std::vector<std::string> names_of_modules(const Module& model, const std::vector<std::string>& names);

// The parameters of an adapter and of the modules that are saved with it, under their names without the adapter's:
// "layers.0.q_proj.lora_A.weight". Tensors share memory with the model.
NamedTensors adapter_tensors(const Module& model, const std::string& name);
// Takes the values of a state dict of the model, whose other entries are left out.
NamedTensors adapter_tensors(const Module& model, const std::string& name, const NamedTensors& state);
// Whether adapter_tensors() takes the entry of a state dict.
bool is_saved_with_adapter(const AddedAdapter& added, const std::string& name, const std::string& path);
// Copies them; each has its place and shape, and none is missing.
void load_adapter_tensors(Module& model, const std::string& name, const NamedTensors& tensors);

}  // namespace accel::nn
