// SPDX-License-Identifier: Apache-2.0
// How the tensors of the ranks are combined.
#pragma once

#include <cstdint>

namespace accel::comm {

enum class ReduceOp : int32_t { kSum, kMean, kMin, kMax, kProduct, kAnd, kOr, kXor };

}  // namespace accel::comm
