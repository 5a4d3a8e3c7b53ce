// SPDX-License-Identifier: Apache-2.0
// Whether this process has used the library, or was forked off one that had.
#pragma once

#include <atomic>

namespace accel {

enum class ProcessUse { kNone, kChecked, kForkedOff };

// kChecked from the first call that has found the process usable. Whoever sets that has asked for a handler of fork().
inline std::atomic<ProcessUse> process_use{ProcessUse::kNone};

// In such a child the threads and locks of the parent's objects do not exist, so nothing is released.
inline bool is_forked_off() noexcept { return process_use.load(std::memory_order_relaxed) == ProcessUse::kForkedOff; }

}  // namespace accel
