// SPDX-License-Identifier: Apache-2.0
// Bucket exchange: the gradients of some parameters in their buckets, each of which is averaged by the communication
// hook of its class as soon as it is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// How the gradients of a class are exchanged: by the hook, among the ranks.
struct ClassExchange {
  CommunicatorPtr ranks;
  CommHookPtr hook;
};

class BucketExchange {
 public:
  // With `as_bucket_view` the parameters' gradients are views of the buckets. Needs set_order() before it is used.
  BucketExchange(std::vector<at::Tensor> parameters, GradientClasses classes, bool as_bucket_view,
                 std::vector<ClassExchange> exchanges);
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  const GradientClasses& classes() const { return classes_; }
  // Replaces the hooks of the first classes.
  void set_hooks(const std::vector<CommHookPtr>& hooks);
  // Makes new buckets. Existing gradients are moved to them.
  void set_order(const BucketOrder& order);
  const BucketOrder& order() const { return order_; }
  const GradientBuffer& buffer() const { return buffer_; }

  // A backward begins: no gradient is ready.
  void begin_backward() { buffer_.start(); }
  // Copies a gradient to its bucket, unless it is there, and marks it as ready.
  void add(size_t number);
  // Starts to exchange the buckets that are complete.
  void start_complete();
  // Waits for all buckets. Gradients for which `is_used` is false stay as they were.
  void finish(const std::function<bool(size_t number)>& is_used);
  // The exchange of a backward, with zero gradients that nothing is taken from.
  void start_zeros();
  void finish_zeros();

 private:
  void start(size_t index, at::Tensor memory);
  void copy_from_bucket(size_t number);

  // Which bucket it is of those of its class.
  struct Place {
    size_t of_class, index;
    bool is_last;
  };

  size_t class_of(size_t number) const { return classes_.empty() ? 0 : classes_[number]; }

  std::vector<at::Tensor> parameters_;
  GradientClasses classes_;  // of the parameters
  bool as_bucket_view_;
  std::vector<ClassExchange> class_exchanges_;
  std::vector<Place> places_;  // of the buckets
  BucketOrder order_;
  GradientBuffer buffer_;                    // in this order
  std::vector<CommHook::Finish> exchanges_;  // of each bucket, from its start to its end
};

}  // namespace accel::parallel
