// SPDX-License-Identifier: Apache-2.0
// Slices of a reduction: each rank reduces one slice of the tensor, in rank order, and sends the result to the ranks
// that need it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/host/page_size.hpp"

namespace accel::comm::ucx {

struct Slices {
  Blocks<Outgoing> inputs;   // slice p is reduced by rank p
  char* result = nullptr;    // of the slice that this rank reduces; may be its input; null where it is not wanted
  Blocks<Incoming> results;  // where the slices that others reduce go to; no bytes where this rank gets none
  int first_receiver = 0, last_receiver = -1;  // the ranks that get the result of this rank
  bool are_whole = false;                      // every rank reduces the whole tensor, or nothing

  size_t largest_input() const {
    size_t largest = 0;
    for (const auto& slice : inputs) largest = std::max(largest, slice.bytes);
    return largest;
  }
};

// Where slice `number` of `count` begins and ends: equal parts, but for the last ones; cut at cache lines, of which
// every element size is a part.
inline std::pair<size_t, size_t> slice_of(size_t bytes, int number, int count) {
  constexpr size_t kLine = 64;
  const auto parts = static_cast<size_t>(count);
  const size_t slice = round_up((bytes + parts - 1) / parts, kLine);
  const size_t start = std::min(bytes, slice * static_cast<size_t>(number));
  return {start, std::min(bytes, start + slice)};
}

// all_reduce and reduce: equal parts of the whole tensor, one for each rank of the session.
Slices slices_of_whole(const Collective& collective, const Session& session);
// Each rank reduces what the others have for it, and nobody returns anything: a reduce_scatter, or the whole tensor by
// ranks that read all inputs themselves.
Slices slices_of_blocks(const Collective& collective, const Session& session);

}  // namespace accel::comm::ucx
