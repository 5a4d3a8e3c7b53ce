// SPDX-License-Identifier: Apache-2.0
// Operators and spans by name.
#pragma once

#include <ATen/core/ivalue.h>

#include "profile/kineto_session.hpp"
#include "trace/span.hpp"

namespace accel::profile {

// Returns the averages in the form of accel_profile_key_averages().
c10::IValue key_averages(const KinetoTrace& trace, const Spans::Recording& spans, bool group_by_shapes);

}  // namespace accel::profile
