// SPDX-License-Identifier: Apache-2.0
// The memory of tensors over time.
#pragma once

#include <ATen/core/ivalue.h>

#include "profile/kineto_session.hpp"

namespace accel::profile {

// Returns the timeline in the form of accel_profile_memory_timeline(). `begun` is in nanoseconds since 1970.
c10::IValue memory_timeline(const KinetoTrace& trace, int64_t begun);

}  // namespace accel::profile
