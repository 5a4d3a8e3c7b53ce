// SPDX-License-Identifier: Apache-2.0
// Matmul dispatch: sends mm, addmm, bmm and baddbmm of dense CPU matrices (so also linear, matmul and their backward)
// to the fastest kernel where compute_policy() says use_tuned_kernels. float32 runs on tiles of oneDNN's microkernel
// (tiled_matmul.hpp) where that is faster, half precision as emulated_matmul.hpp says, and products of a few rows as
// skinny_matmul.hpp says.
#pragma once

#include <string>

#include "kernels/matmul/microkernel.hpp"

namespace accel::kernels {

// Which float32 matmuls run on oneDNN: those that the autotuner finds faster there, or all but small ones.
enum class MatmulChoice { kMeasured, kAll };

// Registers the dispatcher overrides and loads the microkernel, once for the process; a later call only replaces the
// choice. If this LibTorch or processor lacks the microkernel, float32 keeps LibTorch's kernels, which is logged.
void install_matmul_dispatch(MatmulChoice choice, const char* microkernel_symbol = kMicrokernelSymbol);

// Registers the overrides alone, once for the process, so that results can be cached (kernels/cached_results.hpp).
void install_matmul_overrides();

// "LibTorch's default; oneDNN is not faster here (measured, saved in ...)": for accel_state_describe().
std::string describe_matmul_dispatch();

}  // namespace accel::kernels
