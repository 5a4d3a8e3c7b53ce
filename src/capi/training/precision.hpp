// SPDX-License-Identifier: Apache-2.0
// Reading of the options of autocast.
#pragma once

#include "accel.h"

namespace accel {
struct AutocastSettings;
}

namespace accel::capi {

// Fields that are unset are as in `otherwise`.
AutocastSettings read_autocast_options(const accel_autocast_options_t* given, const AutocastSettings& otherwise);

}  // namespace accel::capi
