// SPDX-License-Identifier: Apache-2.0
#include "accelerator/metrics.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

using Rows = std::vector<state::LoaderProgress::Rows>;
// A range [first, second) of the gathered rows.
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

bool equal_rows(const Rows& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return rank.rows == ranks[0].rows; });
}

// The ranges of rows that are not repeated; adjacent ranges are merged.
Ranges valid_ranges(const Rows& ranks) {
  Ranges ranges;
  int64_t begin = 0;
  for (const auto& rank : ranks) {
    if (rank.valid > 0 && !ranges.empty() && ranges.back().second == begin)
      ranges.back().second += rank.valid;
    else if (rank.valid > 0)
      ranges.emplace_back(begin, begin + rank.valid);
    begin += rank.rows;
  }
  return ranges;
}

Ranges first_ranges(int64_t remainder, int64_t all) { return {{0, remainder > 0 ? remainder : all}}; }

at::Tensor pick(const at::Tensor& tensor, const Ranges& ranges) {
  if (ranges.size() == 1) return tensor.slice(0, ranges[0].first, ranges[0].second);
  std::vector<at::Tensor> parts;
  for (const auto& [begin, end] : ranges) parts.push_back(tensor.slice(0, begin, end));
  return parts.empty() ? tensor.slice(0, 0, 0) : at::cat(parts);
}

c10::IValue pick(c10::ArrayRef<c10::IValue> items, const Ranges& ranges) {
  auto kept = tree::new_list();
  const auto count = static_cast<int64_t>(items.size());
  for (const auto& [begin, end] : ranges)
    for (int64_t i = begin; i < std::min(end, count); ++i) kept.push_back(items[i]);
  return kept;
}

void require_batches(const Rows& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    require(
        ranks[rank].rows >= 0, Status::kInvalidState, "rank ", rank,
        " has no batch now, because the loader's even_batches is 0, and would not come to gather; expected a loader "
        "with even_batches");
}

comm::Round gather_objects(const comm::Communicator& communicator, const c10::IValue& value,
                           const state::LoaderProgress& batch) {
  comm::Round gathering = comm::rounds::gather_object(communicator, value);
  if (batch.ranks.empty()) return gathering;  // one process's
  const bool each_row =
      tree::is_sequence(value) && static_cast<int64_t>(tree::sequence_items(value).size()) == batch.rows;
  return comm::rounds::then(std::move(gathering), [each_row, batch](const c10::IValue& all) {
    const auto items = all.toListRef();
    return pick(items, each_row ? valid_ranges(batch.ranks)
                                : first_ranges(batch.remainder, static_cast<int64_t>(items.size())));
  });
}

}  // namespace

comm::Round metrics_round(const comm::Communicator& communicator, const c10::IValue& value,
                          const state::LoaderProgress& batch) {
  bool only_tensors = true;
  std::vector<bool> by_row;  // each tensor's first dimension
  tree::for_each_leaf(value, [&](const c10::IValue& leaf) {
    only_tensors = only_tensors && leaf.isTensor();
    if (leaf.isTensor()) by_row.push_back(leaf.toTensor().dim() > 0 && leaf.toTensor().size(0) == batch.rows);
  });
  require_batches(batch.ranks);
  if (!only_tensors) return gather_objects(communicator, value, batch);
  const Rows& ranks = batch.ranks;
  if (ranks.empty()) return comm::rounds::gather(communicator, value);
  return comm::rounds::then(
      equal_rows(ranks) ? comm::rounds::gather(communicator, value) : comm::rounds::gather_uneven(communicator, value),
      [by_row, batch](const c10::IValue& all) {
        const Ranges valid = valid_ranges(batch.ranks);
        size_t next = 0;
        return tree::map_tensors(all, [&](const at::Tensor& tensor) {
          if (by_row[next++]) return pick(tensor, valid);
          return tensor.dim() > 0 ? pick(tensor, first_ranges(batch.remainder, tensor.size(0))) : tensor;
        });
      });
}

comm::Round object_metrics_round(const comm::Communicator& communicator, const c10::IValue& items,
                                 const state::LoaderProgress& batch) {
  require(tree::is_sequence(items), Status::kTypeMismatch, "items is a ", tree::kind_name(items),
          "; expected a list of one result for each sample");
  require_batches(batch.ranks);
  return gather_objects(communicator, items, batch);
}

}  // namespace accel::accelerator
