// SPDX-License-Identifier: Apache-2.0
// Conversion of reductions to c10d's ReduceOp.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "comm/reduction_kind.hpp"

namespace accel::comm {

// Among `ranks` ranks; multiplied by `scale` in the same pass, which must be 1 unless it is a sum or mean.
c10d::ReduceOp reduce_op(ReduceOp reduction, int ranks, double scale = 1.0);

}  // namespace accel::comm
