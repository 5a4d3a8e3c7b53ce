// SPDX-License-Identifier: Apache-2.0
// Fp8 selection: which linear layers of a model a recipe of fp8 covers.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::nn {

struct Fp8Selection {
  std::vector<std::pair<std::string, at::Tensor>> layers;  // the names of modules with their weights, in their order
  std::map<std::string, std::string> skipped;              // all other linear layers, with the reason
};

// A linear layer is a module with a matrix `weight` that is no embedding, also one whose forward is the application's.
// Layers that are left out because of their sizes are listed in one log line. An error of the filter is the caller's,
// and so is one of the regular expression of the recipe.
Fp8Selection select_fp8_layers(const Module& model, const precision::Fp8Recipe& recipe);

}  // namespace accel::nn
