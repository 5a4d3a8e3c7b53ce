// SPDX-License-Identifier: Apache-2.0
// Half-precision matmul emulated in float32: converts bfloat16 or float16 to float32, multiplies, and rounds the result
// once, as native half-precision kernels do. Several times as fast as LibTorch's kernels on processors without
// instructions for the half dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "machine/processors.hpp"

namespace accel::kernels {

// Which matmuls are emulated while compute_policy() says use_tuned_kernels: those that the autotuner finds faster, or
// for tests all or none.
enum class EmulationChoice { kMeasured, kAll, kNone };
void choose_emulation(EmulationChoice choice);
bool may_emulate();

// Whether large matmuls of a half dtype are emulated, and with them attention and convolutions. The first call
// measures.
bool is_emulated(at::ScalarType dtype);
// Whether this matmul of matrices (`dim` 2) or of batches of them (3) is emulated. False for other dtypes.
bool is_emulated(const at::Tensor& first, const at::Tensor& second, int64_t dim);

// result = first * second, or beta * added + alpha * first * second. The result has the half dtype and the shape of the
// matmul, in any layout; it may be one of the arguments.
void emulated_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result);
void emulated_addmm(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta,
                    double alpha, const at::Tensor& result);

// The speed of emulated bfloat16 matmuls as a fraction of float32's, from a measurement of a few milliseconds.
double emulated_speed();

// "float32 with rounded values; measured by this process": for accel_state_describe().
std::string describe_emulation(at::ScalarType dtype);

}  // namespace accel::kernels
