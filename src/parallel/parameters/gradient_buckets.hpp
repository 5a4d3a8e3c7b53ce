// SPDX-License-Identifier: Apache-2.0
// Data parallelism for gradients of the application: complete buckets are averaged while it computes others. DDP does
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
#include "parallel/parameters/application_gradients.hpp"

namespace accel::parallel {

class GradientBuckets final : public ApplicationGradients {
 public:
  // Collective, as DDP's constructor. For the trainable parameters, in the order of Module::named_parameters().
  GradientBuckets(const nn::Module& module, std::shared_ptr<comm::Communicator> communicator, double bucket_cap_mb);
  ~GradientBuckets() override;
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  size_t size() const override { return parameters_.size(); }
  // A view of the bucket, which is the parameter's gradient for optimizers. Zeros at first, and again from ready() on
  // if an optimizer has set it to none.
  const at::Tensor& gradient(size_t index) override { return memory(index); }

  void ready(size_t index, const at::Tensor& given, Exchange exchange) override;
  void synchronize(Exchange exchange) override;
  std::shared_ptr<comm::Work> start(Exchange exchange) override;

 private:
  const at::Tensor& memory(size_t index) const;
  void put(const at::Tensor& given, const at::Tensor& memory) const;
  std::shared_ptr<comm::Work> started();
  void check_all_ready() const;
  // Starts complete buckets in order, which is the same on all ranks. The last one is left to the thread that
  // synchronizes: nothing can overlap with it, and that thread may do the work.
  void start_complete_buckets(double factor);
  void start_bucket(size_t index, double factor);
  // Exchanges all but the last bucket, whose memory is returned if it is to be exchanged.
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
