// Convolutions in half precision on the CPU in float32 arithmetic, both ways, where kernels/emulated_products.hpp finds
// that faster for products. Where compute_policy() says routed_products.
#pragma once

namespace accel::kernels {

// From now on LibTorch's convolutions ask for the route. Once for the process.
void install_convolution_routing();

}  // namespace accel::kernels
