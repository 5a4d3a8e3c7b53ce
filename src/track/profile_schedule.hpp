// Which steps a profiler records.
#pragma once

namespace accel::track {}  // namespace accel::track
