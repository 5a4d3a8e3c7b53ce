// The processors of this process, and their division among the ranks of a host.
#pragma once

namespace accel {

// The processors that this process may use, which a container or a batch system may have limited; at least 1.
int usable_processors();

// Binds this thread, and those that it starts, to the part of a rank when the usable processors are divided among
// `ranks`. Neighbours stay together, as they mostly share a cache and memory. Returns the size of the part; 0, and
// binds nothing, when there are fewer processors than ranks.
int bind_to_share(int rank, int ranks);

}  // namespace accel
