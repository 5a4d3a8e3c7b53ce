// SPDX-License-Identifier: Apache-2.0
// The size of a page of memory, and rounding up to whole units.
#pragma once

#include <cstddef>

namespace accel::comm::ucx {

inline constexpr size_t kPage = 4096;

inline size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace accel::comm::ucx
