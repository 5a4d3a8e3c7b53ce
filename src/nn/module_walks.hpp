// SPDX-License-Identifier: Apache-2.0
// Walks over the tree of a module and its children.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "nn/placements.hpp"

namespace accel::nn {

using NamedModules = std::vector<std::pair<std::string, const Module*>>;

// Parents before children; each tensor and each module once, under its first name.
NamedTensors named_parameters(const Module& root);
NamedTensors named_buffers(const Module& root);
NamedModules named_modules(const Module& root);
// Parameters and all buffers, tied ones and those of shared modules under each of their names.
NamedTensors named_members(const Module& root);
// Children before their parents, the module itself last. A module with several parents appears under each.
NamedModules children_bottom_up(const Module& root);
int64_t num_parameters(const Module& root);  // elements

// "layers.0" and "weight" give "layers.0.weight"; either may be empty.
std::string join_path(const std::string& path, const std::string& name);
// "layers.0.mlp"; "" is the module itself. An error names the missing part of the path.
const Module& module_at(const Module& root, std::string_view path);
// A parameter or buffer, "layers.0.weight".
at::Tensor find_tensor(const Module& root, std::string_view path);
// Ties weights: `path` becomes the same parameter as `source_path`.
void tie(Module& root, std::string_view path, std::string_view source_path);

// Sets which parts this rank stores of these parameters, which may be anywhere in the tree, under each of their names.
void set_placements(Module& root, const Placements& placements);
// The placements in the whole tree. Parameters that are not there are stored as a whole.
Placements placements(const Module& root);
// Returns those of parameters, whole ones too, of whose gradients ranks along an axis compute terms.
Placements summed_placements(const Module& root);

}  // namespace accel::nn
