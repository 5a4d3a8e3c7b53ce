// Which of our kernels and whose memory the work of a thread uses. LibTorch is shared with the host program, whose own
// work keeps LibTorch's kernels and memory: what this module replaces acts only inside of our calls.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

namespace accel::kernels {

// Aligned as an integer of its size: otherwise Clang calls libatomic for an atomic one.
struct alignas(2) ComputePolicy {
  bool routed_products = false;  // kernels/product_routing.hpp
  bool cached_memory = false;    // kernels/tensor_memory.hpp

  bool operator==(const ComputePolicy& other) const {
    return routed_products == other.routed_products && cached_memory == other.cached_memory;
  }
};

// The policy of this thread now: that of the innermost ComputeScope; without one the default in calls of the C API, and
// outside of them nothing. Operators that autograd's threads run for a backward have the policy of who called it.
ComputePolicy compute_policy();

// For calls that belong to no state: what the first state of the process wants. Any thread.
void set_default_policy(ComputePolicy policy);
void set_first_policy(ComputePolicy policy);  // the same, once

// Bound to its thread; scopes end in reverse order.
class ComputeScope {
 public:
  explicit ComputeScope(ComputePolicy policy);

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace accel::kernels
