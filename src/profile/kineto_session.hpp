// One recording of Kineto.
#pragma once

namespace accel::profile {}  // namespace accel::profile
