// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/make_comm_hook.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/generated/choices/ddp_comm_hook.hpp"
#include "parallel/ddp/gradient_averaging.hpp"
#include "parallel/ddp/power_sgd.hpp"
#include "parallel/ddp/rounding_hook.hpp"

namespace accel::parallel {
namespace {

class CallbackHook final : public CommHook {
 public:
  explicit CallbackHook(BucketCallback callback) : callback_(std::move(callback)) {}

  Finish start(const GradientBucket& bucket) override {
    callback_(bucket.memory, static_cast<int64_t>(bucket.index), bucket.is_last);
    if (bucket.memory.is_cpu()) return [] {};
    // The work that the callback has queued on this thread's stream of the device comes first where the exchange is
    // finished.
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::vector{bucket.memory.device()});
    done->markCompleted(bucket.memory);
    return [done] { done->waitAndThrow(); };
  }

 private:
  const BucketCallback callback_;
};

at::ScalarType dtype_of(DdpCommHook rounding) { return rounding == DdpCommHook::kFp16 ? at::kHalf : at::kBFloat16; }

}  // namespace

CommHookPtr make_comm_hook(const DdpSettings& settings, const CommunicatorPtr& ranks) {
  const DdpCommHook wrapper = settings.comm_wrapper;
  require(wrapper == DdpCommHook::kNo || wrapper == DdpCommHook::kFp16 || wrapper == DdpCommHook::kBf16,
          Status::kInvalidArgument, "comm_wrapper is a PowerSGD hook; expected FP16, BF16 or NO");
  CommHookPtr hook;
  switch (settings.comm_hook.value) {
    case DdpCommHook::kNo:
      return std::make_shared<GradientAveraging>(ranks);  // a wrapper has nothing to wrap, as in Accelerate
    case DdpCommHook::kFp16:
    case DdpCommHook::kBf16:
      hook = std::make_shared<RoundingHook>(dtype_of(settings.comm_hook), std::make_shared<GradientAveraging>(ranks));
      break;
    case DdpCommHook::kPowerSgd:
    case DdpCommHook::kBatchedPowerSgd:
      hook = std::make_shared<PowerSgd>(settings.comm_state_option, settings.comm_hook == DdpCommHook::kBatchedPowerSgd,
                                        ranks);
  }
  if (wrapper == DdpCommHook::kNo) return hook;
  return std::make_shared<RoundingHook>(dtype_of(wrapper), std::move(hook));
}

CommHookPtr make_comm_hook(BucketCallback callback) { return std::make_shared<CallbackHook>(std::move(callback)); }

tensor::Stateful* memory_of(const CommHookPtr& hook) {
  if (const auto* const rounding = dynamic_cast<const RoundingHook*>(hook.get())) return memory_of(rounding->inner());
  return dynamic_cast<tensor::Stateful*>(hook.get());
}

}  // namespace accel::parallel
