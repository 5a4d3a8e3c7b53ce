// SPDX-License-Identifier: Apache-2.0
// Casts of lists of tensors on a device, and their elements in one flat tensor, in a number of launches that does not
// depend on the number of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace accel::kernels {

// Copies in this dtype and the memory order of the tensors.
std::vector<at::Tensor> cast(const std::vector<at::Tensor>& tensors, at::ScalarType dtype);

// All elements in the order of memory, as a view of a dense tensor.
at::Tensor flat(const at::Tensor& tensor);

// The other way round: consecutive elements of a flat tensor in the shapes and the memory order of others.
std::vector<at::Tensor> split_like(const at::Tensor& elements, const std::vector<at::Tensor>& like);

// Tensors like these, each filled with its number of a vector on the device: no operator of lists takes such numbers.
std::vector<at::Tensor> spread_like(const at::Tensor& numbers, const std::vector<at::Tensor>& like);

// Calls run(begin, end) for each run of neighbours of the same shape.
void for_each_shape(const std::vector<at::Tensor>& tensors, const std::function<void(size_t begin, size_t end)>& run);

// Stochastic rounding of float32 into bfloat16 tensors of the same shapes and memory order, by the device's generator.
void round_stochastically(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to);

}  // namespace accel::kernels
