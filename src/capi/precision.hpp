// Reading of the options of autocast.
#pragma once

#include "accel.h"
#include "precision/autocast.hpp"

namespace accel::capi {

// Fields that are unset are as in `otherwise`.
precision::AutocastSettings read_autocast_options(const accel_autocast_options_t* given,
                                                  const precision::AutocastSettings& otherwise);

}  // namespace accel::capi
