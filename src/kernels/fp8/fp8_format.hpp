// SPDX-License-Identifier: Apache-2.0
// The formats of 8-bit floating point.
#pragma once

#include <cstdint>

namespace accel::kernels {

enum class Float8Format : uint8_t { kE4M3, kE5M2 };

// Neighbours that share a scale in block scaling (OCP Microscaling Formats, 2023).
constexpr int64_t kFp8Block = 32;

}  // namespace accel::kernels
