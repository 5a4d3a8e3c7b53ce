// SPDX-License-Identifier: Apache-2.0
// Gradient reduction: a backward of a group. Its gradients arrive one by one, are reduced by one call of coalesced
// collectives, and become those of the shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/work.hpp"
#include "parallel/fsdp/mixed_precision_policy.hpp"
#include "parallel/fsdp/sharded_parameter.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

class GradientReduction {
 public:
  // The arguments are the group's and are not copied. Its parameters are complete.
  GradientReduction(const std::vector<std::unique_ptr<ShardedParameter>>& parameters,
                    const MixedPrecisionPolicy& policy, const ModelRanks& ranks);

  bool is_trained() const { return num_trained_ > 0; }
  bool has_frozen() const { return num_trained_ < parameters_.size(); }  // since the latest backward began
  // `arrived` is called with the index of each parameter whose gradient is complete.
  void watch(const std::function<void(size_t index)>& arrived);

  // Gradients of shards are put aside until the end of the backward.
  void begin_backward();
  bool in_backward() const { return in_backward_; }
  // Returns whether it was the last one.
  bool note_arrival(size_t index);
  bool all_arrived() const { return num_arrived_ == num_trained_; }
  bool has_arrived(size_t index) const { return arrived_[index]; }
  // Starts to reduce the gradients that arrived, their mean over all ranks times `factor`.
  void start_reduce(double factor = 1);
  const std::shared_ptr<comm::Work>& reducing() const { return reducing_; }
  // Waits, and ends the backward.
  void finish_reduce();
  // Ends the backward without the other ranks: the gradients of whole parameters are saved for the next one.
  void keep_gradients();
  // Ends the backward after an error, and forgets what backwards have computed since the gradients were reduced last.
  void drop_gradients();
  bool has_pending_gradients() const;

 private:
  struct Reduced {
    ShardedParameter* parameter;
    at::Tensor whole;  // what is sent, until it is
    at::Tensor shard;  // with padding
  };

  // Over the ranks with parts of the same layers, of shards.
  void sum_terms() const;

  const std::vector<std::unique_ptr<ShardedParameter>>& parameters_;
  const MixedPrecisionPolicy& policy_;
  const ModelRanks& ranks_;
  size_t num_trained_ = 0;
  bool in_backward_ = false;
  std::vector<bool> arrived_;
  size_t num_arrived_ = 0;
  std::vector<Reduced> reduced_;
  double factor_ = 1;
  std::shared_ptr<comm::Work> reducing_;
};

}  // namespace accel::parallel
