// SPDX-License-Identifier: Apache-2.0
#include "nn/cache/paged_layer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/attention/paged_attention.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// With more positions than these, matrix products are faster than reading keys for each of them.
constexpr int64_t kKernelPositions = 8;

// Storage is used with and without inference mode, so it is made outside of it.
at::Tensor new_storage(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const c10::InferenceMode outside(false);
  return at::empty(sizes, options);
}

// Positions [1, heads, tokens, size] into their blocks.
void put_positions(const at::Tensor& storage, const at::Tensor& positions, const at::Tensor& blocks,
                   const at::Tensor& offsets) {
  const at::Tensor rows = positions[0].transpose(0, 1).to(storage.scalar_type());
  const c10::List<std::optional<at::Tensor>> places({blocks.to(storage.device()), offsets.to(storage.device())});
  at::Tensor by_position = storage.transpose(1, 2);
  at::index_put_(by_position, places, rows);
}

}  // namespace

LayerCache* LayerCache::first_of(const c10::IValue& past) {
  if (!tree::is_sequence(past)) return nullptr;
  const auto layers = tree::sequence_items(past);
  return layers.empty() ? nullptr : of(layers[0]);
}

void PagedLayer::make_room(const at::Tensor& like) {
  const int64_t needed = pool_.size(), heads = like.size(1), size = like.size(3);
  if (keys_.defined() && keys_.size(0) >= needed) return;
  const int64_t blocks = keys_.defined() ? std::max(needed, 2 * keys_.size(0)) : needed;
  for (at::Tensor* storage : {&keys_, &values_}) {
    at::Tensor larger = new_storage({blocks, heads, kCacheBlock, size}, like.options());
    if (storage->defined()) larger.narrow(0, 0, storage->size(0)).copy_(*storage);
    *storage = std::move(larger);
  }
}

at::Tensor PagedLayer::attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const AttentionRule& rule) {
  require(key.size(0) == 1 && key.size(2) == call_.positions.size(1), Status::kShapeMismatch,
          "a layer was called with ", key.sizes(), " keys; expected [1, key heads, ", call_.positions.size(1),
          ", size], of the tokens of the call");
  require(!rule.mask.defined() && rule.dropout == 0, Status::kUnsupported,
          "attention with a paged cache was called with a mask or dropout; expected none");
  make_room(key);
  put_positions(keys_, key, call_.blocks[group_], call_.offsets);
  put_positions(values_, value, call_.blocks[group_], call_.offsets);
  const at::Tensor out = at::empty({1, query.size(2), query.size(1), query.size(3)}, query.options()).transpose(1, 2);
  const double scale = rule.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  const kernels::PagedAttention attention{query, keys_, values_, rule.window, scale, rule.cap};
  const bool has_kernel = attention.is_supported();
  std::vector<kernels::PagedSequence> few;
  for (const PagedRow& row : call_.rows[group_]) {
    if (has_kernel && row.positions <= kKernelPositions) {
      few.push_back({row.first, row.positions, row.length, row.blocks});
      continue;
    }
    const auto own = [&](const at::Tensor& of) { return of.narrow(2, row.first, row.positions); };
    own(out).copy_(attend_row(row, own(query), own(key), own(value), rule));
  }
  if (!few.empty()) attention.attend(few, out);
  return out;
}

at::Tensor PagedLayer::attend_row(const PagedRow& row, const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const AttentionRule& rule) const {
  AttentionRule own = rule;
  int64_t begin = 0;
  if (rule.window > 0 && rule.window < row.length) {
    begin = std::max<int64_t>(row.length - row.positions + 1 - rule.window, 0) / kCacheBlock * kCacheBlock;
    const auto options = query.options().dtype(at::kLong);
    const at::Tensor keys = at::arange(begin, row.length, options);
    const at::Tensor queries = at::arange(row.length - row.positions, row.length, options).unsqueeze(1);
    own.mask = keys.le(queries).logical_and(keys.gt(queries - rule.window)).unsqueeze(0).unsqueeze(0);
  }
  if (row.positions == row.length) return attend_causally(query, key, value, own);
  const auto all = [&](const at::Tensor& storage) {
    return gathered(storage, row.blocks, begin, row.length).unsqueeze(0).to(query.scalar_type());
  };
  return attend_causally(query, all(keys_), all(values_), own);
}

at::Tensor PagedLayer::gathered(const at::Tensor& storage, const int64_t* blocks, int64_t begin, int64_t end) const {
  const int64_t first = begin / kCacheBlock, last = (end + kCacheBlock - 1) / kCacheBlock;
  const at::Tensor numbers = at::tensor(at::ArrayRef<int64_t>(blocks + first, blocks + last), at::kLong);
  const at::Tensor chosen = at::index_select(storage, 0, numbers.to(storage.device()));
  return chosen.transpose(0, 1).flatten(1, 2).slice(1, begin - first * kCacheBlock, end - first * kCacheBlock);
}

void PagedLayer::copy_block(int64_t from, int64_t to) {
  if (!keys_.defined()) return;
  make_room(keys_);
  for (const at::Tensor& storage : {keys_, values_}) storage.select(0, to).copy_(storage.select(0, from));
}

at::Tensor PagedLayer::read(const int64_t* blocks, int64_t begin, int64_t end) const {
  return at::stack({gathered(keys_, blocks, begin, end), gathered(values_, blocks, begin, end)});
}

void PagedLayer::write(const int64_t* blocks, int64_t begin, const at::Tensor& keys_and_values) {
  make_room(keys_and_values);
  const int64_t end = begin + keys_and_values.size(2);
  std::vector<int64_t> numbers, offsets;
  for (int64_t position = begin; position < end; position++) {
    numbers.push_back(blocks[position / kCacheBlock]);
    offsets.push_back(position % kCacheBlock);
  }
  put_positions(keys_, keys_and_values.narrow(0, 0, 1), at::tensor(numbers), at::tensor(offsets));
  put_positions(values_, keys_and_values.narrow(0, 1, 1), at::tensor(numbers), at::tensor(offsets));
}

}  // namespace accel::nn
