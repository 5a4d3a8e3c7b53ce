// SPDX-License-Identifier: Apache-2.0
// Routes of the operators of layers to fp8 activations: of norms, activation functions, gates, dropout and attention.
#pragma once

namespace torch {
class Library;
}

namespace accel::nn {

// Kernels on the dispatch key kFp8Route, which open a scope of Fp8Activations where the recipe of the thread's fp8
// layers says so and autocast is on.
void route_activations(torch::Library& operators);

}  // namespace accel::nn
