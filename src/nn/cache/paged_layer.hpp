// SPDX-License-Identifier: Apache-2.0
// Paged layer: the blocks of one layer of a paged cache, and its attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "nn/cache/block_pool.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/cache/paged_call.hpp"

namespace accel::nn {

class PagedLayer final : public LayerCache {
 public:
  // For a cache with such calls, in whose group of layers the blocks are in use.
  PagedLayer(const PagedCall& call, const BlockPool& pool, size_t group) : call_(call), pool_(pool), group_(group) {}

  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const AttentionRule& rule) override;
  const at::Tensor& positions() const override { return call_.positions; }
  const at::Tensor& wanted() const override { return call_.wanted; }

  size_t group() const { return group_; }
  void copy_block(int64_t from, int64_t to);
  // Keys and values [2, key heads, positions, size] of the blocks' positions from `begin` to `end`.
  at::Tensor read(const int64_t* blocks, int64_t begin, int64_t end) const;
  void write(const int64_t* blocks, int64_t begin, const at::Tensor& keys_and_values);

 private:
  // Memory for all blocks of the group, for keys and values like these.
  void make_room(const at::Tensor& like);
  at::Tensor gathered(const at::Tensor& storage, const int64_t* blocks, int64_t begin, int64_t end) const;
  // A row whose positions are more than the kernel is for.
  at::Tensor attend_row(const PagedRow& row, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const AttentionRule& rule) const;

  const PagedCall& call_;
  const BlockPool& pool_;
  size_t group_;
  at::Tensor keys_, values_;  // [blocks, key heads, block length, size]; undefined before the first call
};

}  // namespace accel::nn
