// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions over the buffers of all ranks, in rank order: the same bits on every rank and in every run.
#pragma once

#include <c10/core/ScalarType.h>

#include "comm/ucx/algorithms/reduction_kernels.hpp"

namespace accel::comm::ucx {

// The reduction of one collective.
struct Reducer {
  ReduceFunction function = nullptr;
  double number = 0;

  explicit operator bool() const { return function != nullptr; }
  void operator()(void* output, const void* const* inputs, int buffers, int64_t count) const {
    function(output, inputs, buffers, count, number);
  }
};

// Reduces the tensors of some or all of `ranks` ranks; `factor` belongs to a scaled sum. Null where the reduction makes
// no sense for the dtype (the smallest complex number, the bits of a float).
Reducer find_reducer(c10::ScalarType dtype, ReduceOp reduction, int ranks, double factor);
// Combines the results of find_reducer() for parts of the ranks. Null where all ranks must be reduced at once: whole
// numbers are divided once.
Reducer find_combiner(c10::ScalarType dtype, ReduceOp reduction);

const char* reduction_name(ReduceOp reduction);

}  // namespace accel::comm::ucx
