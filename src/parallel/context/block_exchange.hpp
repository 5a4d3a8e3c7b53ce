// SPDX-License-Identifier: Apache-2.0
// Block exchange: brings the keys and values of all ranks of a group to each of them, block by block, and their
// gradients back to the rank that has them. The next block travels while a rank computes with the one before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

enum class BlockTransport {
  kAllGather,  // all blocks by one collective, beside the computing of a rank's own block
  kRing,       // a block is passed on to the next rank at each step; two or three of them are in memory
};

class ExchangeMemory;

// Route of blocks: how those of a group go. Ranks that map each other's memory read blocks of it in place, whatever the
// transport, and sum gradients there.
struct BlockRoute {
  BlockTransport transport = BlockTransport::kAllGather;
  RankGroup group;
  std::shared_ptr<ExchangeMemory> memory = nullptr;  // null: blocks are copied
};

// A block is one contiguous tensor, of one shape and dtype on all ranks. Step i, from 0 on, has that of rank r - i,
// modulo the ranks, so the first is this rank's own.
class BlockExchange {
 public:
  BlockExchange() = default;
  virtual ~BlockExchange() = default;
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;

  // Each step once, in their order. Valid until the step after. Throws comm::CollectiveError.
  virtual at::Tensor block(int64_t step) = 0;
  // In backward, after block(step): memory for what this rank adds to the gradient of the block, not initialised.
  virtual at::Tensor gradient_memory(int64_t step) = 0;
  // Its values are there. The own block, of step 0, is the last: the rank computes it while the gradient of the block
  // before travels.
  virtual void add_gradient(int64_t step) = 0;
  // After all of them: the sum of all ranks' gradients of this rank's block.
  virtual at::Tensor own_gradient() = 0;
};

// Memory for a block of this rank, without values.
at::Tensor block_memory(const BlockRoute& route, at::IntArrayRef sizes, const at::TensorOptions& options);

// The block must not change until the group begins its next exchange. Exchanges of a group are one after the other.
// Gradients are added in `exact`, a dtype. `compares`: whether each rank learns that one passes a block of other
// positions, which in backward are those of the forward. Without it only the ranks know that get such a block from it.
std::unique_ptr<BlockExchange> exchange_blocks(const BlockRoute& route, const at::Tensor& own, at::ScalarType exact,
                                               bool compares);

}  // namespace accel::parallel
