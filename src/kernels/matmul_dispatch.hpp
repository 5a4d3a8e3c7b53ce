// Matmul dispatch: sends mm, addmm, bmm and baddbmm of dense CPU matrices (so also linear, matmul and their backward)
// to the fastest kernel where compute_policy() says use_tuned_kernels. float32 runs on the oneDNN inside LibTorch where
// that is faster; half precision as emulated_matmul.hpp says.
#pragma once

#include <string>

namespace accel::kernels {

// Which float32 matmuls run on oneDNN: those that the autotuner finds faster there, or all but small ones.
enum class MatmulChoice { kMeasured, kAll };

// at::native::mkldnn_matmul(), in LibTorch 2.11 to 2.15.
inline constexpr const char* kOnednnMatmul = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff";

// Registers the dispatcher overrides, once for the process; a later call only replaces the choice. If this LibTorch
// lacks the function, float32 keeps LibTorch's kernels, which is logged.
void install_matmul_dispatch(MatmulChoice choice, const char* onednn_symbol = kOnednnMatmul);

// "LibTorch's default; oneDNN is not faster here (measured, kept in ...)": for accel_state_describe().
std::string describe_matmul_dispatch();

}  // namespace accel::kernels
