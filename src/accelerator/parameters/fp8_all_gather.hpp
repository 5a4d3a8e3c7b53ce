// SPDX-License-Identifier: Apache-2.0
// Fp8 all-gather: the weights of a prepared model that FSDP gathers in 8 bits, which are those that compute so.
#pragma once

#include <memory>

#include "nn/low_precision/fp8_layers.hpp"
#include "parallel/fp8_gather.hpp"

namespace accel::accelerator {

// Null if `layers` is, or their recipe has no fsdp_all_gather.
parallel::Fp8GatherPtr fp8_all_gather(const std::shared_ptr<nn::Fp8Layers>& layers);

}  // namespace accel::accelerator
