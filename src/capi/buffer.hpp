// Text that leaves the library.
#pragma once

#include <string_view>

#include "accel.h"

namespace accel::capi {

accel_buffer_t new_buffer(std::string_view bytes);

}  // namespace accel::capi
