// SPDX-License-Identifier: Apache-2.0
// Encoded tensors: which layers of a model have encoded weights, and the tensors of those.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "nn/layers/encoded_weight.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// The encoded weight of a projection or an embedding; null: it is none, or has an ordinary one.
const EncodedWeight* encoded_weight(const Module& module);

// The codes and buffers of all encoded weights, which are not converted to other dtypes.
std::unordered_set<const at::TensorImpl*> encoded_tensors(const Module& root);

}  // namespace accel::nn
