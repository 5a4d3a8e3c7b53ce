// SPDX-License-Identifier: Apache-2.0
// Split products: linear layers whose weight is split over ranks, with exchanges that go on while something else is
// computed. The bits of a result do not depend on what goes on meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/layers/projection.hpp"
#include "parallel/regions/region_input.hpp"
#include "parallel/regions/split_region.hpp"

namespace accel::parallel {

// This rank's features of the product with a tensor that has entered the region. In the backward the gradient of the
// input is computed first, and summed while that of the weight is computed.
at::Tensor column_product(const RegionInput::Entered& input, const at::Tensor& weight, const at::Tensor& bias,
                          nn::Product product);

// The sum over the ranks of their products, of which each has some features of the input, and the bias; of this rank's
// positions where sequences are split. The sum of the first rows goes on while the next ones are computed.
at::Tensor row_product(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, nn::Product product,
                       const SplitRegion& region);

}  // namespace accel::parallel
