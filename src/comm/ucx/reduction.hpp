// Element-wise reductions over the buffers of all ranks, in rank order: the same bits on every rank and in every run.
#pragma once

#include <c10/core/ScalarType.h>

#include "comm/ucx/reduction_kernels.hpp"

namespace accel::comm::ucx {

// Null where the reduction makes no sense for the dtype (the smallest complex number, the bits of a float).
ReduceFunction find_reduction(c10::ScalarType dtype, Reduction reduction);

const char* reduction_name(Reduction reduction);

}  // namespace accel::comm::ucx
