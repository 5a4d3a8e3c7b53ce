// Which hook turns a bucket of gradients into its mean over the ranks, and how it is made.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "state/stateful.hpp"

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace accel::parallel {

// @accelerate DDPCommunicationHookType
enum class CommHook { kNo, kFp16, kBf16, kPowerSgd, kBatchedPowerSgd };

// Defaults of torch's PowerSGDState.
struct PowerSgdSettings {
  int64_t matrix_approximation_rank = 1;
  int64_t start_iteration = 1000;
  double min_compression_rate = 2;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;
  bool use_error_feedback = true;
  bool warm_start = true;
  bool batch_tensors_with_same_shape = false;
};

struct CommHookSettings {
  CommHook hook = CommHook::kNo;
  CommHook wrapper = CommHook::kNo;  // kFp16 or kBf16
  PowerSgdSettings power_sgd;
};

using CommHookPtr = std::shared_ptr<c10d::CommHookInterface>;
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

CommHookPtr make_comm_hook(const CommHookSettings& settings, const ProcessGroupPtr& process_group);

// The program's own: makes of a bucket's gradients, in place, what the optimizer shall see.
using BucketCallback = std::function<void(const at::Tensor& buffer, int64_t bucket, bool is_last)>;
CommHookPtr make_comm_hook(BucketCallback callback);

// What a hook remembers from step to step; null for one that remembers nothing.
state::Stateful* memory_of(const CommHookPtr& hook);

}  // namespace accel::parallel
