// SPDX-License-Identifier: Apache-2.0
// Conversion of accel_backward_options_t to the engine's options.
#pragma once

#include "accel.h"
#include "tensor/autograd/backward.hpp"

namespace accel::capi {

tensor::BackwardOptions read_backward_options(const accel_backward_options_t* given);

}  // namespace accel::capi
