// SPDX-License-Identifier: Apache-2.0
// Checks that this process can use the library: it has the right LibTorch, and was not forked from a process that had
// used the library.
#pragma once

namespace accel::capi {

// The entry of every function that can fail. Throws UNSUPPORTED or INVALID_STATE; one load once it has succeeded.
void require_usable_process();

// In a child of fork() that is known to be usable: its parent had one thread and no state.
void accept_forked_off() noexcept;

// States have threads, connections and memory that a child of fork() cannot use, also after their release.
void note_state() noexcept;
bool has_made_state() noexcept;

}  // namespace accel::capi
