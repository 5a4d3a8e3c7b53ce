// The gradients of a model in a few flat tensors, the buckets, each of which is exchanged as soon as it is complete
// while others are still computed (Li et al., "PyTorch Distributed", VLDB 2020): their memory, their order, and what is
// ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::parallel {

constexpr int64_t kMegabyte = 1024 * 1024;
// Throws for a size that is not positive.
int64_t bucket_bytes(double bucket_cap_mb);

// The parameters in each bucket, by their numbers. Buckets are exchanged from the first to the last.
using BucketOrder = std::vector<std::vector<size_t>>;

// Fills buckets with parameters of one dtype and device, in the order of `numbers`, until they have as many bytes as
// their limit; the last limit is that of all further buckets.
BucketOrder fill_buckets(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& numbers,
                         const std::vector<int64_t>& limits);
// The same for gradients that come in about the reverse order of the parameters.
BucketOrder fill_buckets_backwards(const std::vector<at::Tensor>& parameters, const std::vector<int64_t>& limits);

// How gradients lie in a bucket.
enum class GradientLayout {
  kPacked,   // without gaps, with the strides of their parameters
  kAligned,  // contiguous, each from a cache line on
};

class GradientBuffer {
 public:
  struct Bucket {
    at::Tensor memory;  // flat; where the ranks share memory it is there, to be reduced in place
    std::vector<size_t> gradients;
    std::vector<size_t> offsets;  // of each gradient, in elements
    size_t waiting = 0;           // gradients that are not ready
  };

  GradientBuffer() = default;
  GradientBuffer(const std::vector<at::Tensor>& parameters, const BucketOrder& order, GradientLayout layout,
                 const comm::Communicator& communicator);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  BucketOrder order() const;
  // The memory of a gradient: a view of its bucket.
  const at::Tensor& gradient(size_t number) const { return gradients_[number].memory; }

  // From here on no gradient is ready.
  void start();
  bool is_ready(size_t number) const { return gradients_[number].ready; }
  void set_ready(size_t number);
  // The next bucket in order, once, when all its gradients are ready and it comes before `end`.
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
