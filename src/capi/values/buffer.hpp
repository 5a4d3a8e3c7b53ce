// SPDX-License-Identifier: Apache-2.0
// Text that is returned to the application.
#pragma once

#include <string_view>

#include "accel.h"

namespace accel::capi {

accel_buffer_t new_buffer(std::string_view bytes);

}  // namespace accel::capi
