// SPDX-License-Identifier: Apache-2.0
// Convolution dispatch: computes half-precision convolutions on the CPU, forward and backward, in float32 where
// emulated_matmul.hpp finds that faster for matmuls, and compute_policy() says use_tuned_kernels.
#pragma once

namespace accel::kernels {

// Registers the dispatcher overrides, once for the process.
void install_convolution_dispatch();

}  // namespace accel::kernels
