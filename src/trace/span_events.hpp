// SPDX-License-Identifier: Apache-2.0
// Spans as events of a Chrome trace.
#pragma once

#include <cstdint>
#include <string>

#include "trace/span.hpp"

namespace accel::track {

// [Note: tracks of a trace] Viewers draw the events of a thread as nested bars, so what overlaps without nesting needs
// a track of its own: the parts of the loop's steps have one, and collectives, which run beside each other, as many as
// it takes.
inline constexpr int64_t kLoopTrack = 2'000'000'000;
inline constexpr int64_t kCollectiveTracks = kLoopTrack + 1;

// Events with a comma behind each. Times count from `base` nanoseconds since 1970.
std::string span_events(const Spans::Recording& recording, int64_t base, int64_t process);

}  // namespace accel::track
