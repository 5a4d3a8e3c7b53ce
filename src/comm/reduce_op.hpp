// Reductions as c10d's backends know them.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "comm/collective.hpp"

namespace accel::comm {

// Of `ranks` ranks, times `scale` in the same pass: 1 for what is no sum or mean.
c10d::ReduceOp reduce_op(Reduction reduction, int ranks, double scale = 1.0);

}  // namespace accel::comm
