// Attention of short sequences in half precision on the CPU by batched products, both ways. LibTorch multiplies it
// block by block, where each small product in bfloat16 costs more than its arithmetic. In float32 its kernel is as fast
// as products in batches, through oneDNN too; so on processors without instructions for a half dtype (see
// emulated_products.hpp) attention of every length is computed in float32. Where compute_policy() says routed_products.
#pragma once

namespace accel::kernels {

// From now on LibTorch's attention asks for the route. Once for the process.
void install_attention_routing();

}  // namespace accel::kernels
