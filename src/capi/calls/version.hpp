// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "accel.h"
#include "base/error.hpp"

namespace accel::capi {

// "0.1.0"
inline std::string library_version() {
  return text(ACCEL_VERSION_MAJOR, ".", ACCEL_VERSION_MINOR, ".", ACCEL_VERSION_PATCH);
}

}  // namespace accel::capi
