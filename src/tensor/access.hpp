// SPDX-License-Identifier: Apache-2.0
// Access to single tensors, with checks that have errors for users of the library.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace accel::tensor {

// The value of a tensor with one element. Throws kShapeMismatch, or kTypeMismatch if the result cannot represent it.
double single_number(const at::Tensor& tensor);
int64_t single_integer(const at::Tensor& tensor);

// The first element; kInvalidState for a tensor without memory.
void* data_pointer(const at::Tensor& tensor);
// Returns the address for readers of an array of `dtype`: only of a contiguous tensor on the CPU.
void* elements(const at::Tensor& tensor, c10::ScalarType dtype);

// To be called after writing by address: increments the tensor's version, for autograd and for caches of derived
// values.
void count_write(const at::Tensor& tensor);

// Shares the memory if nothing changes.
at::Tensor convert(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype, c10::Device device,
                   bool non_blocking);

// Copies elements, with conversion and broadcasting.
void copy_elements(const at::Tensor& target, const at::Tensor& source);

void set_requires_grad(const at::Tensor& tensor, bool requires_grad);
// An undefined gradient removes the current one.
void set_grad(const at::Tensor& tensor, const at::Tensor& gradient);

}  // namespace accel::tensor
