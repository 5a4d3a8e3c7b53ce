// Attention dispatch: runs half-precision attention of short sequences on the CPU, forward and backward, as batched
// matmuls (short_attention.hpp) where compute_policy() says use_tuned_kernels. LibTorch's flash attention multiplies
// small blocks, whose fixed cost in bfloat16 exceeds their arithmetic; in float32 it is as fast as batched matmuls, so
// where half precision is emulated (emulated_matmul.hpp), attention of every length is computed by it in float32.
#pragma once

namespace accel::kernels {

// Registers the dispatcher overrides, once for the process.
void install_attention_dispatch();

}  // namespace accel::kernels
