// SPDX-License-Identifier: Apache-2.0
// Tied parameters: one tensor that a model has under several names.
#pragma once

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

using TiedGroups = std::vector<std::vector<std::string>>;

// The names of each parameter that has several, sorted; the groups are sorted too.
// @accelerate find_tied_parameters
TiedGroups find_tied_parameters(const Module& model);

// Ties the parameters of each group to the first of them that is not on the device meta; a group without one stays.
// @accelerate retie_parameters
void retie_parameters(Module& model, const TiedGroups& groups);

}  // namespace accel::nn
