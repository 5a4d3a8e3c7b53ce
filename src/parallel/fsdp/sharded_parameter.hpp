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

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace accel::parallel {

// Dimension 0 in equal parts, of which the last ones may be shorter or empty.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
int64_t rows_per_rank(int64_t rows, int ranks);
RowRange rows_of_rank(int64_t rows, int rank, int ranks);

class ShardedParameter {
 public:
  // Does not touch the data yet. `compute_dtype` is that of the whole parameter. A parameter without a dimension is an
  // error that names it.
  ShardedParameter(std::string name, at::Tensor parameter, std::optional<at::ScalarType> compute_dtype, int rank,
                   int ranks);
  ~ShardedParameter();
  ShardedParameter(const ShardedParameter&) = delete;
  ShardedParameter& operator=(const ShardedParameter&) = delete;

  const std::string& name() const { return name_; }
  const at::Tensor& tensor() const { return parameter_; }
  bool is_trained() const { return parameter_.requires_grad(); }
  const std::vector<int64_t>& shape() const { return shape_; }  // of the whole parameter
  const RowRange& rows() const { return rows_; }                // of the shard
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  // Elements that each rank contributes to the whole, with padding.
  int64_t elements_per_rank() const { return elements_per_rank_; }
  int64_t padded_elements() const { return elements_per_rank_ * ranks_; }

  // Moves the rows of this rank from the whole parameter to `memory`, which has elements_per_rank() zeros, and makes
  // them the parameter's data. Whole ones will be on `device`.
  void set_shard_memory(const at::Tensor& memory, const at::Tensor& whole, c10::Device device);
  // The shard with its padding, as it is gathered.
  const at::Tensor& padded_shard() const { return padded_shard_; }
  const at::Tensor& shard() const { return shard_; }

  // Where the gradient of the shard is kept, instead of in new memory of each step: like the shard.
  void set_gradient_memory(at::Tensor memory) { gradient_memory_ = std::move(memory); }

  // Makes `memory`, which has padded_elements() of compute_dtype(), the parameter's data.
  void unshard(const at::Tensor& memory);
  void reshard();
  // Outside of forwards and backwards: shows whole values, in its own dtype, until hide_whole(), which takes the rows
  // of this rank from them if `keep`.
  void show_whole(at::Tensor whole);
  void hide_whole(bool keep);
  const at::Tensor& shown() const { return shown_; }
  bool has_storage(const c10::StorageImpl* storage) const;
  // Whether the parameter's data are still the shard, while it is not unsharded.
  bool has_shard() const;

  // `arrived` is called in a backward when the gradient of the whole parameter is complete; also
  // that of a parameter which is trained later only.
  void watch_gradient(std::function<void()> arrived);

  // Before gradients of a backward arrive: puts the gradient of the shard aside.
  void begin_backward();
  // Takes the gradient of the whole parameter; undefined if none arrived.
  at::Tensor take_gradient();
  // While the parameter is whole: the gradient of it is zeros, unless there is one.
  void add_zero_gradient();
  // Keeps it, so that the next backward adds to it.
  void keep_gradient(at::Tensor whole) { whole_gradient_ = std::move(whole); }
  const at::Tensor& kept_gradient() const { return whole_gradient_; }
  // Ends the backward: the gradient of the shard is what it was, plus `shard_gradient` if that is defined, which may
  // have another dtype and device.
  void end_backward(const at::Tensor& shard_gradient);

 private:
  struct Accumulator;  // autograd's node for the gradient, with our hook

  void add_hook();

  std::string name_;
  at::Tensor parameter_;
  std::vector<int64_t> shape_;
  at::ScalarType dtype_, compute_dtype_;
  int ranks_;
  RowRange rows_;
  int64_t elements_per_rank_;
  at::Tensor whole_;  // its storage has memory while the parameter is unsharded
  at::Tensor shard_;
  at::Tensor padded_shard_;
  at::Tensor shown_;                          // by show_whole()
  std::unique_ptr<Accumulator> accumulator_;  // kept, so that each forward finds it; null before it is trained
  std::function<void()> arrived_;
  bool in_backward_ = false;
  at::Tensor gradient_memory_;
  at::Tensor shard_gradient_;  // while in_backward_
  at::Tensor whole_gradient_;  // of backwards whose gradients were not exchanged
};

}  // namespace accel::parallel
