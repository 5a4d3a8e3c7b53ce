// SPDX-License-Identifier: Apache-2.0
// GELU dispatch: gelu and gelu_backward of dense CPU tensors in one pass over memory (gelu_kernels.hpp) where
// compute_policy() says use_tuned_kernels and the processor has AVX-512.
#pragma once

namespace accel::kernels {

// Registers the dispatcher overrides, once for the process.
void install_gelu_dispatch();

}  // namespace accel::kernels
