// SPDX-License-Identifier: Apache-2.0
// Replica items: the parameters of prepared models, and the states of their optimizers, as this rank stores them.
// Replicas must have equal ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace accel::accelerator {

struct PreparedObjects;

struct ReplicaItem {
  std::string name;    // "parameter 'layers.0.weight'", "'exp_avg' of parameter 'layers.0.weight'"
  at::Tensor tensor;   // not defined for other values
  std::string text{};  // the bits of a number, or a text
};

// In an order that is equal on all ranks. Completes the steps of the models, which ranks of a sharded model do
// together.
std::vector<ReplicaItem> replica_items(const PreparedObjects& prepared);

}  // namespace accel::accelerator
