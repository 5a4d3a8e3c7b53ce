// SPDX-License-Identifier: Apache-2.0
// Coded matrix: a matrix as codes, and the scales and offsets of their groups in float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/quantized/quantized_weight.hpp"

namespace accel::nn {

struct CodedMatrix {
  kernels::WeightFormat format;
  std::vector<int64_t> sizes;  // [rows, columns]
  bool is_flat = false;        // groups do not begin with the rows: the matrix is stored as one row of all elements
  at::Tensor codes, scales, offsets;
  // The column of the matrix for each stored one, of an integer dtype: groups are of neighbouring stored columns.
  // Undefined: columns are stored in their order.
  at::Tensor order;

  // For the kernels, with the columns as they are stored; on the CPU. The matrix must outlive it.
  kernels::QuantizedWeight of_kernels() const;
  // Inputs [..., columns] in the order of the stored columns.
  at::Tensor in_stored_order(const at::Tensor& inputs) const;
  // Decoded, on the device of the codes.
  at::Tensor values(at::ScalarType dtype) const;
  // Decodes to float32 by operators of LibTorch, as devices without kernels do.
  at::Tensor values_by_operators() const;
  // Rows by indices of any shape, which are in range: [..., columns].
  at::Tensor rows(const at::Tensor& indices, at::ScalarType dtype) const;

 private:
  // Stored columns [..., columns] in the order of the matrix.
  at::Tensor in_own_order(const at::Tensor& stored) const;
};

// Whether kernels take numbers of the dtype: float32, bfloat16 or float16.
bool is_kernel_dtype(at::ScalarType dtype);
kernels::Format kernel_format(at::ScalarType dtype);

// The values of the 16 codes of nf4 or fp4, in float32.
at::Tensor code_book(kernels::WeightCode code);

}  // namespace accel::nn
