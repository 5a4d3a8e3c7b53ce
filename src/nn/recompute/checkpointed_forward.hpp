// SPDX-License-Identifier: Apache-2.0
// Checkpointed forward: the graph keeps the inputs of a module instead of its activations, and computes the forward
// again when a backward needs them (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
//
// The graph is the one of an ordinary forward: only what its nodes save is replaced
// (tensor/autograd/saved_tensor_hooks.hpp). The first node that needs a saved tensor computes the forward again, which
// saves the same tensors in the same order; the graph of that is thrown away. So one backward runs, hooks of gradients
// are called once, and data parallelism sees nothing of it.
#pragma once

#include <functional>
#include <memory>

#include "config/generated/settings/module/activation_checkpointing.hpp"
#include "nn/module.hpp"

namespace accel::nn {

using Checkpointing = std::shared_ptr<const ActivationCheckpointingSettings>;
using ForwardFunction = std::function<c10::IValue(const Inputs& inputs)>;

// Calls `forward`, the forward of `module`. With grad mode.
c10::IValue checkpointed_forward(Module& module, const Inputs& inputs, const Checkpointing& settings,
                                 const ForwardFunction& forward);

}  // namespace accel::nn
