// SPDX-License-Identifier: Apache-2.0
#include "nn/cache/paged_cache.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "nn/cache/paged_layer.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {

PagedCache::PagedCache(const std::vector<int64_t>& windows) {
  for (const int64_t window : windows) {
    const auto known =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) { return group.window == window; });
    const auto group = static_cast<size_t>(known - groups_.begin());
    if (known == groups_.end()) groups_.emplace_back().window = window;
    layers_.push_back(c10::make_intrusive<PagedLayer>(call_, groups_[group].pool, group));
  }
}

PagedCache::~PagedCache() = default;

c10::IValue PagedCache::begin_call(const std::vector<Row>& rows, c10::Device device) {
  call_ = PagedCall();
  call_.rows.resize(groups_.size());
  std::vector<int64_t> positions, wanted, offsets;
  std::vector<std::vector<int64_t>> blocks(groups_.size());
  for (const Row& row : rows) {
    const int64_t length = row.sequence->length(), begin = length - row.positions;
    const auto first = static_cast<int64_t>(positions.size());
    for (size_t group = 0; group < groups_.size(); group++) {
      const std::vector<int64_t>& own = row.sequence->blocks_[group];
      call_.rows[group].push_back({first, row.positions, length, own.data()});
      for (int64_t position = begin; position < length; position++)
        blocks[group].push_back(own[static_cast<size_t>(position / kCacheBlock)]);
    }
    for (int64_t position = begin; position < length; position++) {
      positions.push_back(position);
      offsets.push_back(position % kCacheBlock);
    }
    for (int64_t i = row.positions - row.wanted; i < row.positions; i++) wanted.push_back(first + i);
  }
  call_.positions = at::tensor(positions).unsqueeze(0).to(device);
  call_.wanted = at::tensor(wanted, at::kLong).to(device);
  call_.offsets = at::tensor(offsets);
  for (const std::vector<int64_t>& numbers : blocks) call_.blocks.push_back(at::tensor(numbers));
  std::vector<c10::IValue> layers;
  for (const auto& layer : layers_)
    layers.push_back(c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(layer)));
  return tree::new_list(std::move(layers));
}

at::Tensor PagedCache::read(size_t layer, const CachedSequence& sequence, int64_t begin) const {
  const PagedLayer& own = *layers_.at(layer);
  return own.read(sequence.blocks_[own.group()].data(), begin, sequence.length());
}

void PagedCache::write(size_t layer, const CachedSequence& sequence, int64_t begin, const at::Tensor& keys_and_values) {
  PagedLayer& own = *layers_.at(layer);
  own.write(sequence.blocks_[own.group()].data(), begin, keys_and_values);
}

void PagedCache::copy_block(size_t group, int64_t from, int64_t to) {
  for (const auto& layer : layers_)
    if (layer->group() == group) layer->copy_block(from, to);
}

CachedSequence::CachedSequence(std::shared_ptr<PagedCache> cache)
    : cache_(std::move(cache)), blocks_(cache_->groups_.size()) {}

CachedSequence::~CachedSequence() {
  for (size_t group = 0; group < blocks_.size(); group++)
    for (const int64_t block : blocks_[group])
      if (block != kGivenUp) cache_->groups_[group].pool.release(block);
}

int64_t CachedSequence::first_seen(int64_t window, int64_t length) {
  return window > 0 ? std::max<int64_t>(length + 1 - window, 0) : 0;
}

void CachedSequence::extend(int64_t positions) {
  for (size_t group = 0; group < blocks_.size(); group++) {
    PagedCache::Group& shared = cache_->groups_[group];
    std::vector<int64_t>& own = blocks_[group];
    const int64_t unseen = first_seen(shared.window, length_ - kMaxRollback) / kCacheBlock;
    for (int64_t i = unseen - 1; i >= 0 && own[static_cast<size_t>(i)] != kGivenUp; i--)
      shared.pool.release(std::exchange(own[static_cast<size_t>(i)], kGivenUp));
    if (length_ % kCacheBlock != 0 && shared.pool.is_shared(own.back())) {
      const int64_t copied = shared.pool.take();
      cache_->copy_block(group, own.back(), copied);
      shared.pool.release(std::exchange(own.back(), copied));
    }
    while (static_cast<int64_t>(own.size()) * kCacheBlock < length_ + positions) own.push_back(shared.pool.take());
  }
  length_ += positions;
}

void CachedSequence::truncate(int64_t length) {
  const auto kept = static_cast<size_t>((length + kCacheBlock - 1) / kCacheBlock);
  for (size_t group = 0; group < blocks_.size(); group++)
    for (std::vector<int64_t>& own = blocks_[group]; own.size() > kept; own.pop_back())
      if (own.back() != kGivenUp) cache_->groups_[group].pool.release(own.back());
  length_ = length;
}

std::unique_ptr<CachedSequence> CachedSequence::fork(int64_t length) const {
  require(length <= length_, Status::kInternal, "a fork of ", length, " positions of ", length_);
  auto fork = std::make_unique<CachedSequence>(cache_);
  for (size_t group = 0; group < blocks_.size(); group++) {
    PagedCache::Group& shared = cache_->groups_[group];
    const int64_t seen = first_seen(shared.window, length) / kCacheBlock;
    for (int64_t i = 0; i * kCacheBlock < length; i++) {
      const int64_t block = blocks_[group][static_cast<size_t>(i)];
      if (block == kGivenUp && i >= seen) return nullptr;
      if (block != kGivenUp) shared.pool.share(block);
      fork->blocks_[group].push_back(block);
    }
  }
  fork->length_ = length;
  return fork;
}

}  // namespace accel::nn
