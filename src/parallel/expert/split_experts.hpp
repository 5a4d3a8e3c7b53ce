// SPDX-License-Identifier: Apache-2.0
// Split experts: each rank along the axis "expert" of the mesh has some of the experts of a model's layers.
#pragma once

#include <functional>
#include <string>

#include "nn/module.hpp"
#include "parallel/regions/exchange.hpp"

namespace accel::parallel {

// Whether a path, of a module or of a parameter, is of experts of a program, or of another library.
using NamesExperts = std::function<bool(const std::string& path)>;

// Collective among `ranks`, which are those along `axis` of the mesh: leaves each its experts, in place, from the
// values of the first one, and lets tokens go to them: those of mixtures of experts, and parameters that are named, or
// all of a named module, whose first dimension are experts. Such a module's forward calls accel::dispatch_tokens and
// accel::combine_tokens. kInvalidArgument for a layer whose experts the ranks do not divide.
void split_experts(nn::Module& model, const RankGroup& ranks, const std::string& axis,
                   const NamesExperts& names_experts);

// Sets it in all layers (MixtureOfExperts::set_capacity_factor()).
void set_capacity_factor(nn::Module& model, double factor);

}  // namespace accel::parallel
