// SPDX-License-Identifier: Apache-2.0
// Attention dispatch: sends attention without a mask, forward and backward, to the fastest kernel where
// compute_policy() says use_tuned_kernels. float32, and half precision where it is emulated (emulated_matmul.hpp), runs
// on strips of oneDNN's microkernel (tiled_attention.hpp); half precision of short sequences elsewhere as batched
// matmuls (short_attention.hpp), since LibTorch's flash attention multiplies small blocks, whose fixed cost in bfloat16
// exceeds their arithmetic. LibTorch computes problems that neither supports, emulated half precision in float32.
#pragma once

namespace accel::kernels {

// Registers the dispatcher overrides, once for the process.
void install_attention_dispatch();

}  // namespace accel::kernels
