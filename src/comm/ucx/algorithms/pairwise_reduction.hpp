// SPDX-License-Identifier: Apache-2.0
// Pairwise reduction: one step of ring and recursive-halving algorithms, which combine two ranks at a time.
#pragma once

#include <cstddef>

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

// Bytes of the tensor.
struct Range {
  size_t start, end;
};

// Whose elements come first in the sum, so that all ranks get the same bits.
enum class First { kOwn, kTheirs };

// Sends `given` of `data` to rank `to`, and reduces `kept` with what rank `from` has of it.
void reduce_with(int from, const Range& kept, First first, int to, const Range& given, const Collective& collective,
                 char* data, Session& session);

}  // namespace accel::comm::ucx
