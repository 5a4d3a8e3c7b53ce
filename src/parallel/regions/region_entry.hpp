// SPDX-License-Identifier: Apache-2.0
// Region entry: a tensor that has entered a region of split layers, and what the column layers that read it share in
// the backward.
//
// Note: order of the backward. Autograd runs those of its nodes that are ready in the order of their numbers, the
// latest first. A region takes three numbers when a tensor enters it, so that the gradients of the inputs of all layers
// that read the tensor come first; then their sum over the ranks is started; then come gradients of weights; and at
// last the sum is waited for. A layer's own node therefore computes the gradient of its input, and leaves that of its
// weight to a node of its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "parallel/regions/split_region.hpp"

namespace accel::parallel {

class RegionEntry {
 public:
  // Enters by parallel_copy(), or gathers the sequence.
  RegionEntry(const at::Tensor& input, const SplitRegion& region);

  // The tensor that layers read is held by them alone.
  at::Tensor take_whole() { return std::move(whole_); }
  const SplitRegion& region() const { return region_; }
  // The number of nodes that compute gradients of weights.
  uint64_t weight_order() const { return weight_order_; }

  // A layer computes with the whole.
  void add_use() { uses_ += 1; }
  size_t uses() const { return uses_; }
  // A layer will read the whole again in the backward, in this dtype. `part` is the tensor that entered. False: other
  // layers read it in another dtype, and this one does not.
  bool add_reader(const at::Tensor& part, at::ScalarType dtype);
  // In a backward: starts to gather what read() returns.
  void start_gather();
  // The whole, once for each reader.
  at::Tensor read();
  // The graph is not used again by one of the readers.
  void release_reader();

 private:
  SplitRegion region_;
  at::Tensor whole_;
  uint64_t weight_order_ = 0;
  std::mutex mutex_;
  torch::autograd::SavedVariable part_;
  at::ScalarType read_dtype_ = at::ScalarType::Undefined;
  size_t uses_ = 0, readers_ = 0, released_ = 0;
  size_t reads_ = 0;  // of this backward
  std::optional<StartedExchange> gathering_;
  at::Tensor gathered_;
};

}  // namespace accel::parallel
