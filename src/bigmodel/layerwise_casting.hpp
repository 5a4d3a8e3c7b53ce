// SPDX-License-Identifier: Apache-2.0
// Layer-wise casting: layers keep their parameters in a small dtype, and compute in another one.
// @accelerate attach_layerwise_casting_hooks, LayerwiseCastingHook
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::bigmodel {

struct LayerwiseCasting {
  at::ScalarType storage_dtype, compute_dtype;
  std::vector<std::string> skipped_patterns;  // regular expressions, searched in the names of modules
  std::vector<std::string> skipped_classes;
};

// Attaches casting to linear layers, convolutions and attention. Everything is checked before anything is changed.
void attach_layerwise_casting(nn::Module& model, const LayerwiseCasting& casting);

}  // namespace accel::bigmodel
