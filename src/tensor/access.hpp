// Reading and changing of single tensors, with the checks whose failures LibTorch words for its own developers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace accel::tensor {

// The one element of a tensor. Throws kShapeMismatch, kTypeMismatch for what the result cannot hold.
double single_number(const at::Tensor& tensor);
int64_t single_integer(const at::Tensor& tensor);

// The first element; kInvalidState for a tensor without memory.
void* data_pointer(const at::Tensor& tensor);

// For what writes by address: tells autograd, which may have saved the tensor, and all who keep something made of it.
void count_write(const at::Tensor& tensor);

// The same memory when nothing changes.
at::Tensor convert(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype, c10::Device device,
                   bool non_blocking);

// Copies elements with conversion and broadcasting.
void copy_elements(const at::Tensor& target, const at::Tensor& source);

void set_requires_grad(const at::Tensor& tensor, bool requires_grad);
// An undefined gradient takes away what is there.
void set_grad(const at::Tensor& tensor, const at::Tensor& gradient);

}  // namespace accel::tensor
