// The backward of attention in half precision on the CPU, for short sequences. LibTorch multiplies it block by block in
// bf16, where each small product costs more than its arithmetic; in float32 it is up to seven times as fast, and more
// exact. From some 200 positions on bf16 wins where the processor has it. Where compute_policy() says routed_products.
#pragma once

namespace accel::kernels {

// From now on LibTorch's attention asks for the route. Once for the process.
void install_attention_routing();

}  // namespace accel::kernels
