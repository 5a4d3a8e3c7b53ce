// The memory of tensors over time.
#pragma once

namespace accel::profile {}  // namespace accel::profile
