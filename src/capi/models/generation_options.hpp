// SPDX-License-Identifier: Apache-2.0
// The options of generation, as the engine has them.
#pragma once

#include "accel.h"
#include "nn/generation/generation_settings.hpp"

namespace accel::capi {

// Without the files of prompt caches.
nn::GenerationSettings read_generation(const accel_generate_options_t* options);

}  // namespace accel::capi
