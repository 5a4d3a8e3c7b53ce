// SPDX-License-Identifier: Apache-2.0
// Paged call: where the tokens of a call of the model are in a paged cache. All layers read it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::nn {

constexpr int64_t kCacheBlock = 32;  // positions

// New positions of a sequence.
struct PagedRow {
  int64_t first, positions, length;  // the first one in the call; the sequence's with them
  const int64_t* blocks;             // the sequence's
};

struct PagedCall {
  at::Tensor positions, wanted;             // as LayerCache has them
  std::vector<std::vector<PagedRow>> rows;  // by group of layers
  std::vector<at::Tensor> blocks;           // of each token, int64 [tokens], by group
  at::Tensor offsets;                       // in these blocks
};

}  // namespace accel::nn
