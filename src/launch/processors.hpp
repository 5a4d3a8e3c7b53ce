#pragma once

namespace accel::launch {

// The processors that this process may use, which a container or a batch system may have limited; at least 1.
int usable_processors();

}  // namespace accel::launch
