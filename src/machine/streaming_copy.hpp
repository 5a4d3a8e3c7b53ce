// SPDX-License-Identifier: Apache-2.0
// Streaming copy with non-temporal stores, which bypass the caches: the destination is not read before it is written.
#pragma once

#include <cstddef>

namespace accel {

void copy_streaming(char* to, const char* from, size_t bytes);

}  // namespace accel
