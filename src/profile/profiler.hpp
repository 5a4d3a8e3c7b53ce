// Profiler: records the steps of a schedule.
#pragma once

namespace accel::profile {

class Profiler {};

}  // namespace accel::profile
