// The memory of LibTorch's CPU tensors: large ones that our calls make come from a cache of blocks. Note: measured with
// a GPT in bf16 on two processes, the step is 20 % faster than with the C library's malloc, as with tcmalloc; mimalloc
// 2.0, which returns large blocks sooner, gained half of that.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>

#include "kernels/block_cache.hpp"

namespace accel::kernels {

// Whether the host program is itself one of LibTorch: then its allocator is left alone unless we are told otherwise.
bool host_uses_libtorch();

// From now on the allocator of CPU tensors is ours; it acts where compute_policy() says cached_memory, and leaves the
// rest to the former one. Once for the process.
void install_tensor_memory();

// A tensor that is not initialised, from the cache if it is large and on the CPU, whatever the policy: for results as
// large as all ranks' tensors together, whose fresh pages would take most of the time of a gather.
at::Tensor empty_kept(c10::IntArrayRef shape, const at::TensorOptions& options);

// While it lives, this thread's large CPU tensors are in memory from elsewhere, whatever the policy: for LibTorch's
// code that makes tensors of its own. Scopes end in reverse order.
class TensorMemorySource {
 public:
  using Allocate = std::function<at::Tensor(size_t bytes)>;  // returns bytes

  // Null has no effect.
  explicit TensorMemorySource(Allocate allocate);
  TensorMemorySource(const TensorMemorySource&) = delete;
  TensorMemorySource& operator=(const TensorMemorySource&) = delete;
  ~TensorMemorySource();

 private:
  const Allocate allocate_;
  const Allocate* const outer_;
};

// How many bytes wait for the next tensor at most; 0 until it is set.
void keep_tensor_memory(size_t most_kept);

// A fourth of the memory that this host or container may use, divided among its processes.
size_t default_most_kept(size_t local_processes);

// Returns the memory that waits to be used again to the system.
void trim_tensor_memory();

BlockStatistics tensor_memory_statistics();
void reset_tensor_memory_peak();

}  // namespace accel::kernels
