// SPDX-License-Identifier: Apache-2.0
// One call of c10d's interface, whatever its kind: c10d has a function and a struct of options for each. Header only,
// because backends are plugins.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "comm/collective_kind.hpp"

namespace c10d {
enum class OpType : std::uint8_t;
class Work;
}  // namespace c10d

namespace accel::comm {

// The call of the application that a chunk belongs to. Ranks compare it and name it in errors.
struct WholeCall {
  c10::IntArrayRef shape;
  uint32_t part = 0;  // index in a coalesced call
  uint32_t parts = 1;
};

struct CollectiveCall {
  CollectiveCall(CollectiveKind kind, c10d::OpType type) : kind(kind), type(type) {}
  template <typename Options>
  CollectiveCall(CollectiveKind kind, c10d::OpType type, const Options& options)
      : kind(kind), type(type), timeout(options.timeout), is_async(options.asyncOp) {}

  const KindTraits& traits() const { return traits_of(kind); }
  // How many collectives of tensors it is.
  size_t count() const { return are_apart ? 1 : std::max(inputs.size(), outputs.size()); }
  // The tensor of collective `index` that the ranks must agree on: what a rank has of it, not the blocks of all.
  const at::Tensor& described(size_t index) const {
    const bool gets_one_block = !traits().sends_one_block() && !traits().gathers();
    return traits().is_in_place() || gets_one_block ? outputs[index] : inputs[index];
  }

  CollectiveKind kind;
  c10d::OpType type;  // of its work
  // Tensors that are read and written; those of a collective that is in place are outputs. The blocks of all ranks are
  // in one tensor, one after the other, or apart in one each. Several tensors that are not apart are as many
  // collectives, which are one call. An all_gather without an output leaves its inputs in their place.
  std::vector<at::Tensor> inputs = {}, outputs = {};
  bool are_apart = false;
  // The rows for, and from, each rank; empty: equally many.
  std::vector<int64_t> input_splits = {}, output_splits = {};
  c10d::ReduceOp reduction = c10d::ReduceOp::SUM;
  int64_t rank = kNoRank;       // the source, the destination, or the other rank of a message
  int tag = 0;                  // of a message
  bool may_be_shorter = false;  // of a receive: than the tensor
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool is_async = true;
  std::optional<WholeCall> whole = std::nullopt;  // set: this call is a chunk of it

  static constexpr int64_t kNoRank = -1;
};

}  // namespace accel::comm
