// SPDX-License-Identifier: Apache-2.0
// Products with coded matrices, which get no gradient; inputs and biases do.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/quantized/coded_matrix.hpp"
#include "nn/quantized/quantized_kind.hpp"

namespace accel::nn {

// input [..., columns] times the matrix transposed, plus `bias` [rows] if it is defined. In the dtype of autocast or
// else of the input; computed in that of the kind. On devices other than the CPU the matrix is decoded for each
// product, and inputs are not rounded.
at::Tensor coded_product(const CodedMatrix& matrix, const QuantizedKind& kind, const at::Tensor& input,
                         const at::Tensor& bias);

}  // namespace accel::nn
