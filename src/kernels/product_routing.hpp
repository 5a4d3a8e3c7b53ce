// Float32 products of dense CPU matrices (mm, addmm, bmm, baddbmm, and what linear, matmul and their backward come down
// to) through the oneDNN inside LibTorch where that is faster: where compute_policy() says routed_products.
#pragma once

#include <string>

namespace accel::kernels {

// Which products go through oneDNN, while they are routed at all.
enum class ProductChoice { kMeasured, kAll };

// From now on LibTorch's products ask for the route. Once for the process; a later choice replaces the former one.
// Without the function in this LibTorch, nothing is routed, and a line of the log says so.
void install_product_routing(ProductChoice choice);

// "LibTorch's default; oneDNN is not faster here (measured, kept in ...)": for accel_state_describe().
std::string describe_product_routing();

}  // namespace accel::kernels
