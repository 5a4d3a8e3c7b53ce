// Bucket exchange: the gradients of some parameters in their buckets, each of which is averaged by a communication hook
// as soon as it is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_buffer.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

class BucketExchange {
 public:
  // With `as_bucket_view` the parameters' gradients are views of the buckets. Needs set_order() before it is used.
  BucketExchange(std::vector<at::Tensor> parameters, bool as_bucket_view, CommunicatorPtr communicator,
                 CommHookPtr hook);
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  void set_hook(CommHookPtr hook) { hook_ = std::move(hook); }
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

  std::vector<at::Tensor> parameters_;
  bool as_bucket_view_;
  CommunicatorPtr communicator_;
  CommHookPtr hook_;
  BucketOrder order_;
  GradientBuffer buffer_;                    // in this order
  std::vector<CommHook::Finish> exchanges_;  // of each bucket, from its start to its end
};

}  // namespace accel::parallel
