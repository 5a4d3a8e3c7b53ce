// SPDX-License-Identifier: Apache-2.0
// Grouped product: rows in groups, one group after the other, each with a matrix of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::nn {

// The product of the rows of each group, of which there are `counts`, with its matrix. Rows are [rows, in], the weight
// is [groups, out, in], the result [rows, out]. Each product reads its rows and writes its result where they are; a
// group without rows has a gradient of zeros. Under autocast it is computed in the dtype of linear layers. It has no
// second derivative.
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& weight, const std::vector<int64_t>& counts);
// The tensor as the product reads it: what is cast ahead is moved in fewer bytes.
at::Tensor cast_for_grouped_product(const at::Tensor& tensor);

}  // namespace accel::nn
