// SPDX-License-Identifier: Apache-2.0
// How a pickle holds bytes that have a type ("python/pickle"), which Python's lack: {"$bytes": (type, bytes)}.
#pragma once

namespace accel::checkpoint {

inline constexpr const char* kTypedBytes = "$bytes";

}  // namespace accel::checkpoint
