// SPDX-License-Identifier: Apache-2.0
// Gradient buffer: the gradients of a model in a few flat tensors, the buckets. Each bucket is exchanged as soon as it
// is complete, while other gradients are still computed (Li et al., "PyTorch Distributed", VLDB 2020).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

constexpr int64_t kMegabyte = 1024 * 1024;
// Throws unless the size is positive.
int64_t bucket_bytes(double bucket_cap_mb);

// The indices of the parameters in each bucket. Buckets are exchanged in order.
using BucketOrder = std::vector<std::vector<size_t>>;

// The number of the class of each parameter: gradients of one class are exchanged alike. Empty: there is one class.
using GradientClasses = std::vector<size_t>;

// Assigns parameters to buckets in the order of `numbers`. A bucket has one dtype, device and class, and ends when it
// reaches its limit in bytes; the last limit is for all further buckets.
BucketOrder fill_buckets(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& numbers,
                         const std::vector<int64_t>& limits, const GradientClasses& classes = {});
// Orders gradients that arrive in about the reverse order of the parameters.
BucketOrder fill_buckets_backwards(const std::vector<at::Tensor>& parameters, const std::vector<int64_t>& limits,
                                   const GradientClasses& classes = {});

// The layout of gradients in a bucket.
enum class GradientLayout {
  kPacked,   // contiguous to each other, with the strides of their parameters
  kAligned,  // contiguous tensors, each aligned to a cache line
};

class GradientBuffer {
 public:
  struct Bucket {
    at::Tensor memory;  // flat; in shared memory if the ranks have it, to be reduced in place
    std::vector<size_t> gradients;
    std::vector<size_t> offsets;  // of each gradient, in elements
    size_t waiting = 0;           // gradients that are not ready
  };

  // The ranks that exchange the gradient of a parameter, by its number.
  using RanksOf = std::function<const comm::Communicator&(size_t number)>;

  GradientBuffer() = default;
  GradientBuffer(const std::vector<at::Tensor>& parameters, const BucketOrder& order, GradientLayout layout,
                 const RanksOf& ranks_of);
  GradientBuffer(const std::vector<at::Tensor>& parameters, const BucketOrder& order, GradientLayout layout,
                 const comm::Communicator& ranks)
      : GradientBuffer(parameters, order, layout, [&ranks](size_t) -> const comm::Communicator& { return ranks; }) {}

  const std::vector<Bucket>& buckets() const { return buckets_; }
  BucketOrder order() const;
  // A view of the gradient in its bucket.
  const at::Tensor& gradient(size_t number) const { return gradients_[number].memory; }

  // Marks all gradients as not ready.
  void start();
  bool is_ready(size_t number) const { return gradients_[number].ready; }
  void set_ready(size_t number);
  // The next bucket in order, if all its gradients are ready and it is before `end`; each bucket once.
  std::optional<size_t> take_complete(size_t end);
  std::optional<size_t> take_complete() { return take_complete(buckets_.size()); }
  bool all_taken() const { return next_ == buckets_.size(); }

 private:
  struct Gradient {
    at::Tensor memory;
    size_t bucket = 0;
    bool ready = false;
  };

  std::vector<Gradient> gradients_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;
};

}  // namespace accel::parallel
