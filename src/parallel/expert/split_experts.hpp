// Split experts: each rank along the axis "expert" of the mesh has some of the experts of a model's layers.
#pragma once

#include "nn/module.hpp"
#include "parallel/regions/exchange.hpp"

namespace accel::parallel {

// Collective among `ranks`: leaves each its experts, in place, from the values of the first one, and lets tokens go to
// them. Layers whose experts are shared out already stay as they are. kInvalidArgument for a layer whose experts the
// ranks do not divide.
void split_experts(nn::Module& model, const RankGroup& ranks);

// Sets it in all layers (MixtureOfExperts::set_capacity_factor()).
void set_capacity_factor(nn::Module& model, double factor);

}  // namespace accel::parallel
