// SPDX-License-Identifier: Apache-2.0
// Collectives, described by the blocks that are sent to and received from each rank, and by how they are combined.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/ucx/algorithms/header.hpp"
#include "comm/ucx/algorithms/reduction.hpp"

namespace accel::comm::ucx {

struct Outgoing {
  const char* data = nullptr;
  size_t bytes = 0;
};

struct Incoming {
  char* data = nullptr;
  size_t bytes = 0;
};

// Blocks of two ranks need no allocation.
template <typename Block>
using Blocks = c10::SmallVector<Block, 2>;

// An all_gather that leaves the blocks where they are, and shows them to all ranks.
struct ShownBlocks {
  at::Tensor own;                                   // what the others are like
  std::shared_ptr<std::vector<at::Tensor>> blocks;  // gets them; null in any other collective
};

struct Collective {
  Header header;
  // Block p is sent to, or received from, rank p; this rank's own is copied. all_reduce and reduce have one of each:
  // the whole tensor and the result. For reduce_scatter, incoming has only the result.
  Blocks<Outgoing> outgoing;
  Blocks<Incoming> incoming;
  // Reduces tensors; combines partial results. Null where that is not possible.
  Reducer reduce, combine;
  size_t element_size = 1;
  ShownBlocks shown;
  // Where shapes may differ, compared between the ranks: how many elements go to each rank, then how many come from
  // each.
  std::vector<int64_t> splits;
};

// The block for rank `peer`; empty if it needs none.
Outgoing block_for(const Collective& collective, int peer);

// Copies a block of the rank to itself, or one that was received into another buffer.
inline void copy_block(const Incoming& to, const char* from) {
  if (to.bytes && to.data != from) std::memmove(to.data, from, to.bytes);
}

// Writes this rank's contribution to a result, to which those of other ranks are added with `combine`.
void begin_partial(const Collective& collective, const Incoming& result, const char* tensor);

}  // namespace accel::comm::ucx
