// Products of bfloat16 and float16 in float32 arithmetic: sums are float32, and rounded to the half dtype once, as
// kernels of the half dtypes do. Where a processor has no instructions for a half dtype this is several times as fast
// as LibTorch's kernels for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "base/processors.hpp"

namespace accel::kernels {

// Which products are emulated while compute_policy() says routed_products: those that a measurement finds faster, or
// for tests all or none.
enum class EmulationChoice { kMeasured, kAll, kNone };
void choose_emulation(EmulationChoice choice);

// Whether the products of a half dtype are emulated from some size on, and so is what consists of them: attention and
// convolutions. The first call measures.
bool is_emulated(at::ScalarType dtype);
// Whether a product of matrices, or of batches of them where `dim` is 3, is emulated. False for other dtypes.
bool is_emulated(const at::Tensor& first, const at::Tensor& second, int64_t dim);

// result = first * second, or beta * added + alpha * first * second. The result is of the half dtype and the product's
// shape, in any layout; it may be one of the others.
void emulated_product(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result);
void emulated_sum(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta, double alpha,
                  const at::Tensor& result);

// The speed of emulated bfloat16 products as a part of float32's, by a measurement of few milliseconds.
double emulated_speed();

// "float32 with rounded values; measured by this process": for accel_state_describe().
std::string describe_emulation(at::ScalarType dtype);

}  // namespace accel::kernels
