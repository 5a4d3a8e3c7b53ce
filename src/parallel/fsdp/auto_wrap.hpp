// SPDX-License-Identifier: Apache-2.0
// Auto-wrap policies: which modules of a model form a parameter group of their own.
#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel {
struct FsdpSettings;
}

namespace accel::parallel {

struct WrappedModule {
  std::string path;  // "layers.0"; empty for the model itself
  nn::ModulePtr module;
  nn::NamedTensors parameters;  // those of the module that no module inside it has taken; names from the model's root
};

// The wrapped modules with their parameters, the model itself last and always, inner modules before outer ones. A
// parameter that several modules share belongs to the innermost wrapped module that contains all of them. Without the
// parameters of `ignored_modules`. An unknown name of a class is an error with the known ones. Modules whose parameters
// are cut along the axis `apart` are wrapped as well, since other ranks have the same rows of them.
std::vector<WrappedModule> wrap_modules(const nn::ModulePtr& model, const FsdpSettings& settings,
                                        const std::string& apart = "");

// The numbers of the wrapped modules in the order in which they are registered, outer ones before inner ones: as a
// forward probably calls them.
std::vector<size_t> registration_order(const nn::Module& model, const std::vector<WrappedModule>& modules);

// Activation checkpointing of the wrapped modules inside the model, or of the model if there is none.
void checkpoint_wrapped_modules(const nn::ModulePtr& model, const FsdpSettings& settings);

}  // namespace accel::parallel
