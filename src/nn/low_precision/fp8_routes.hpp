// SPDX-License-Identifier: Apache-2.0
// Routes of products to the fp8 layers of a thread's scope: kernels of at::linear(), at::matmul(), at::mm() and
// at::addmm() on a dispatch key that threads without a scope do not include.
#pragma once

#include <memory>

#include "nn/low_precision/fp8_layers.hpp"

namespace accel::nn {

std::shared_ptr<Fp8Layers> make_fp8_layers(const precision::Fp8Recipe& recipe, Fp8Selection selection,
                                           c10::Device device);

}  // namespace accel::nn
