// SPDX-License-Identifier: Apache-2.0
// Splits work between the ranks. @accelerate PartialState.split_between_processes
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <utility>

namespace accel::state {

// The share [begin, end) of rank `rank` in `length` items: the first `length % size` ranks get one more.
std::pair<int64_t, int64_t> split_range(int64_t length, int rank, int size);

// The share of a list, of the rows of a tensor, or of each member of a map of these: always a copy. With padding, short
// shares repeat the last element of the whole input.
c10::IValue split_between_processes(const c10::IValue& inputs, int rank, int size, bool apply_padding);

}  // namespace accel::state
