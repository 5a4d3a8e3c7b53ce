// Gradients that a program computes by itself: it says which one is ready, and they are averaged meanwhile. DDP does
// the same for LibTorch's autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/gradient_buffer.hpp"

namespace accel::parallel {

class GradientBuckets {
 public:
  // Collective, as DDP's construction. Of the trainable parameters, in the order of Module::named_parameters().
  GradientBuckets(const nn::Module& module, std::shared_ptr<comm::Communicator> communicator, double bucket_cap_mb);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  size_t size() const { return parameters_.size(); }
  // Lies in its bucket, and is the parameter's gradient for optimizers: zeros at first, and again from ready() on when
  // an optimizer has dropped it.
  const at::Tensor& gradient(size_t index) const;

  // Whether this micro-batch ends a group, and by what its gradients are multiplied then, beside the mean over the
  // ranks.
  using Exchange = std::optional<double>;

  // Thread-safe. One gradient of this micro-batch is complete: the program has written it, or gives it, to be copied in
  // the first micro-batch of a group and added in others. A bucket that is complete starts on its way.
  void ready(size_t index, const at::Tensor& given, Exchange exchange);
  // After all are ready: the end of the micro-batch. Starts what is left, and returns when all gradients are averaged.
  void synchronize(Exchange exchange);
  // The same, and returns at once; started() ends when all gradients are averaged.
  void start(Exchange exchange);
  std::shared_ptr<comm::Work> started();

 private:
  void check_all_ready() const;
  // In their order, which is the same on all ranks; but the last one waits for the thread that synchronizes: nothing is
  // left to overlap with it, and that thread may do the work.
  void start_complete_buckets(double factor);
  void start_bucket(size_t index, double factor);
  // All but the last bucket, whose memory is returned where it is to be exchanged.
  const at::Tensor* start_all_but_last(Exchange exchange);

  const std::shared_ptr<comm::Communicator> communicator_;
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  GradientBuffer buffer_;
  std::vector<std::shared_ptr<comm::Work>> exchanged_;  // of each bucket
  bool first_of_group_ = true;
};

}  // namespace accel::parallel
