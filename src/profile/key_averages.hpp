// Operators and spans by name.
#pragma once

namespace accel::profile {}  // namespace accel::profile
