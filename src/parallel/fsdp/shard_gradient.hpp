// SPDX-License-Identifier: Apache-2.0
// Shard gradient: the gradient of a sharded parameter. It is that of the whole parameter during a backward, and that of
// the shard otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace accel::parallel {

class ShardGradient {
 public:
  explicit ShardGradient(at::Tensor parameter) : parameter_(std::move(parameter)) {}

  // Whether ranks with parts of the same layers compute terms of it.
  bool is_summed() const { return is_summed_; }
  void set_summed(bool is_summed) { is_summed_ = is_summed; }
  // The layout of the gradient of the shard.
  void set_options(const at::TensorOptions& options) { options_ = options; }
  // Where the gradient of the shard is stored, instead of in new memory of each step: like the shard.
  void set_memory(at::Tensor memory) { memory_ = std::move(memory); }

  // Before gradients of a backward arrive: puts the gradient of the shard aside.
  void begin_backward();
  // Takes the gradient of the whole parameter; undefined if none arrived.
  at::Tensor take_whole();
  // While the parameter is whole: the gradient of it is zeros, unless there is one.
  void add_zeros();
  // Keeps it, so that the next backward adds to it.
  void keep_whole(at::Tensor whole) { whole_ = std::move(whole); }
  const at::Tensor& kept_whole() const { return whole_; }
  // Ends the backward, and forgets the gradient of the whole parameter, also one that was saved.
  void drop_whole();
  // Ends the backward: the gradient of the shard is what it was, plus `of_shard` if that is defined, which may have
  // another dtype and device.
  void end_backward(const at::Tensor& of_shard);

 private:
  at::Tensor parameter_;
  at::TensorOptions options_;
  bool is_summed_ = false;
  bool in_backward_ = false;
  at::Tensor memory_;
  at::Tensor shard_;  // while in_backward_
  at::Tensor whole_;  // of backwards whose gradients were not exchanged
};

}  // namespace accel::parallel
