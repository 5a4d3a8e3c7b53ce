// SPDX-License-Identifier: Apache-2.0
// Interface of the communication hooks of DDP, which average the gradients of a bucket over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace accel::parallel {

// A bucket whose gradients are complete on this rank.
struct GradientBucket {
  at::Tensor memory;                   // flat: the gradients one after the other
  size_t index = 0;                    // among the hook's buckets of a backward, which are exchanged in order
  bool is_last = false;                // of these
  std::vector<at::Tensor> parameters;  // whose gradients they are, in their order
};

class CommHook {
 public:
  // Waits for the exchange of one bucket. When it returns, what this thread computes next finds the gradients for the
  // optimizer in the bucket's memory. Throws the error of the exchange.
  using Finish = std::function<void()>;

  CommHook() = default;
  CommHook(const CommHook&) = delete;
  CommHook& operator=(const CommHook&) = delete;
  virtual ~CommHook() = default;

  // Starts to exchange a bucket, in backward; all ranks start the same buckets in the same order. The result is called
  // once, at the end of backward and in the order of the buckets, or never if the backward fails.
  virtual Finish start(const GradientBucket& bucket) = 0;
};

using CommHookPtr = std::shared_ptr<CommHook>;

}  // namespace accel::parallel
