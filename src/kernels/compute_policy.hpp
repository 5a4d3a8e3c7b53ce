// SPDX-License-Identifier: Apache-2.0
// Compute policy of a thread: whether LibTorch's operators use our kernels and our memory. LibTorch is shared with the
// application, whose own work keeps LibTorch's kernels and memory: our replacements act only inside of our calls.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

namespace accel::kernels {

// Aligned as an integer of its size: otherwise Clang calls libatomic for an atomic one.
struct alignas(2) ComputePolicy {
  bool use_tuned_kernels = false;  // kernels/matmul/matmul_dispatch.hpp
  bool use_cached_memory = false;  // kernels/memory/cpu_allocator.hpp

  bool operator==(const ComputePolicy& other) const {
    return use_tuned_kernels == other.use_tuned_kernels && use_cached_memory == other.use_cached_memory;
  }
};

// The current policy of this thread: that of the innermost ComputeScope; without one the default inside calls of the C
// API, and none of ours outside of them. Operators that autograd's threads run have the policy of the thread that
// called backward.
ComputePolicy compute_policy();

// For calls without a state: the policy of the first state of the process. Any thread.
void set_default_policy(ComputePolicy policy);
void set_first_policy(ComputePolicy policy);  // only the first call has an effect

// Bound to its thread; scopes end in reverse order.
class ComputeScope {
 public:
  explicit ComputeScope(ComputePolicy policy);

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace accel::kernels
