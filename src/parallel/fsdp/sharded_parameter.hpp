// SPDX-License-Identifier: Apache-2.0
// Sharded parameter: this rank stores some rows of it, and has all of them while its group is unsharded.
//
// Note: one tensor, two sets of data. The tensor that the application, the modules and the optimizer hold stays the
// same object. Between steps its data are the shard, in the parameter's own dtype; while the group is unsharded they
// are the whole parameter, in the dtype of the computation. The whole parameter has a storage of its own, whose memory
// comes with each unshard and goes with each reshard: views of the parameter that autograd saved in a forward refer to
// that storage, and so have their values again in the backward. Neither counts as a change for autograd. The gradient
// follows: that of the whole parameter during a backward, that of the shard otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "parallel/fsdp/shard_gradient.hpp"
#include "parallel/fsdp/shard_layout.hpp"
#include "tensor/autograd/gradient_hook.hpp"

namespace accel::parallel {

class ShardedParameter {
 public:
  // Does not touch the data yet.
  ShardedParameter(std::string name, at::Tensor parameter, std::optional<at::ScalarType> compute_dtype, int rank,
                   int ranks);
  ~ShardedParameter();
  ShardedParameter(const ShardedParameter&) = delete;
  ShardedParameter& operator=(const ShardedParameter&) = delete;

  const std::string& name() const { return name_; }
  const at::Tensor& tensor() const { return parameter_; }
  bool is_trained() const { return parameter_.requires_grad(); }
  const ShardLayout& layout() const { return layout_; }
  ShardGradient& gradient() { return gradient_; }
  const ShardGradient& gradient() const { return gradient_; }

  // Moves the rows of this rank from the whole parameter to `memory`, which has layout().elements_per_rank() zeros, and
  // makes them the parameter's data. Whole ones will be on `device`.
  void set_shard_memory(const at::Tensor& memory, const at::Tensor& whole, c10::Device device);
  // The shard with its padding, as it is gathered.
  const at::Tensor& padded_shard() const { return padded_shard_; }
  const at::Tensor& shard() const { return shard_; }

  // Makes `memory`, which has layout().padded_elements() of its compute_dtype(), the parameter's data.
  void unshard(const at::Tensor& memory);
  void reshard();
  // Outside of forwards and backwards: shows whole values, in its own dtype, until hide_whole(), which takes the rows
  // of this rank from them if `keep`.
  void show_whole(at::Tensor whole);
  void hide_whole(bool keep);
  const at::Tensor& visible_whole() const { return visible_whole_; }
  bool has_storage(const c10::StorageImpl* storage) const;
  // Whether the parameter's data are still the shard, while it is not unsharded.
  bool has_shard() const;

  // `arrived` is called in a backward when the gradient of the whole parameter is complete; also
  // that of a parameter which is trained later only.
  void watch_gradient(std::function<void()> arrived);

 private:
  std::string name_;
  at::Tensor parameter_;
  ShardLayout layout_;
  ShardGradient gradient_;
  at::Tensor whole_;  // its storage has memory while the parameter is unsharded
  at::Tensor shard_;
  at::Tensor padded_shard_;
  at::Tensor visible_whole_;                  // by show_whole()
  std::optional<tensor::GradientHook> hook_;  // from when it is trained on
  std::function<void()> arrived_;
};

}  // namespace accel::parallel
