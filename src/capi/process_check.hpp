// Whether this process can use the library: LibTorch is the right one, and it was not forked off a process that had
// used it already.
#pragma once

namespace accel::capi {

// The entry of every function that can fail. Throws UNSUPPORTED or INVALID_STATE; one load once it has succeeded.
void require_usable_process();

// In such a child the threads and locks of the parent's objects do not exist, so nothing of them is released.
bool is_forked_off() noexcept;

}  // namespace accel::capi
