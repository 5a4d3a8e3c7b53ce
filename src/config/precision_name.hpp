// SPDX-License-Identifier: Apache-2.0
// Names of the mixed precisions.
#pragma once

#include "config/generated/choices/precision.hpp"

namespace accel {

const char* precision_name(Precision precision);  // "no", "fp16", "bf16", "fp8"

}  // namespace accel
