// Operators and spans by name.
#pragma once

#include <ATen/core/ivalue.h>

#include "profile/kineto_session.hpp"
#include "trace/span.hpp"

namespace accel::profile {

// As accel_profile_key_averages() gives them.
c10::IValue key_averages(const KinetoTrace& trace, const Spans::Recording& spans, bool group_by_shapes);

}  // namespace accel::profile
