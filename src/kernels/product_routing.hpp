// Products of dense CPU matrices (mm, addmm, bmm, baddbmm, and what linear, matmul and their backward come down to)
// where compute_policy() says routed_products: those of float32 through the oneDNN inside LibTorch where that is
// faster, those of halves as emulated_products.hpp says.
#pragma once

#include <string>

namespace accel::kernels {

// Which products go through oneDNN, while they are routed at all.
enum class ProductChoice { kMeasured, kAll };

// at::native::mkldnn_matmul(), in LibTorch 2.11 to 2.15.
inline constexpr const char* kOnednnProduct = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff";

// From now on LibTorch's products ask for the route. Once for the process; a later choice replaces the former one.
// Without the function in this LibTorch, float32 products are not routed, and a line of the log says so.
void install_product_routing(ProductChoice choice, const char* onednn_symbol = kOnednnProduct);

// "LibTorch's default; oneDNN is not faster here (measured, kept in ...)": for accel_state_describe().
std::string describe_product_routing();

}  // namespace accel::kernels
