// SPDX-License-Identifier: Apache-2.0
// Tensors from memory, with the checks of shapes that LibTorch does not make.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <memory>

namespace accel::tensor {

// Throws kInvalidArgument for a negative size, or if the number of bytes overflows.
void check_shape(c10::IntArrayRef shape, c10::ScalarType dtype);

// The shape from a caller's `shape` and `ndim`: not null, not longer than LibTorch allows.
c10::IntArrayRef shape_of(const int64_t* sizes, size_t ndim);

at::Tensor empty(c10::IntArrayRef shape, c10::ScalarType dtype, c10::Device device);
at::Tensor full(c10::IntArrayRef shape, double number, c10::ScalarType dtype, c10::Device device);
at::Tensor randn(c10::IntArrayRef shape, c10::ScalarType dtype, c10::Device device);
at::Tensor randint(int64_t low, int64_t high, c10::IntArrayRef shape);

// A CPU tensor with a copy of row-major elements.
at::Tensor from_data(const void* data, c10::IntArrayRef shape, c10::ScalarType dtype);

// A tensor over `data`, which `owner` keeps alive. `strides` count elements; null: row-major.
at::Tensor from_blob(void* data, c10::IntArrayRef shape, const int64_t* strides, c10::ScalarType dtype,
                     c10::Device device, std::shared_ptr<void> owner);

}  // namespace accel::tensor
