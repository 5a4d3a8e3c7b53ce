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
  kRing,       // a block is passed on to the next rank at each step; two of them are in memory
};

// A block is one contiguous tensor, of one shape and dtype on all ranks. Step i, from 0 on, has that of rank r - i,
// modulo the ranks, so the first is this rank's own.
class BlockExchange {
 public:
  BlockExchange() = default;
  virtual ~BlockExchange() = default;
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;

  // Each step once, in their order. Valid until the step after.
  virtual at::Tensor block(int64_t step) = 0;
  // In backward, after block(step): what this rank adds to the gradient of the block. The tensor is changed.
  virtual void add_gradient(int64_t step, const at::Tensor& gradient) = 0;
  // After the last step: the sum of all ranks' gradients of this rank's block.
  virtual at::Tensor own_gradient() = 0;
};

std::unique_ptr<BlockExchange> exchange_blocks(BlockTransport transport, const at::Tensor& own, const RankGroup& group);

}  // namespace accel::parallel
