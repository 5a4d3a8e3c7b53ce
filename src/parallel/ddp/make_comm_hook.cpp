#include "parallel/ddp/make_comm_hook.hpp"

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "base/error.hpp"
#include "parallel/ddp/gradient_averaging.hpp"
#include "parallel/ddp/power_sgd.hpp"
#include "parallel/ddp/rounding_hook.hpp"

namespace accel::parallel {
namespace {

class CallbackHook final : public c10d::CommHookInterface {
 public:
  explicit CallbackHook(BucketCallback callback) : callback_(std::move(callback)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor& buffer = bucket.getBuffer();
    callback_(buffer, static_cast<int64_t>(bucket.getIndex()), bucket.isLast());
    std::vector<c10::Device> devices;
    if (!buffer.is_cpu()) devices.push_back(buffer.device());
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices);
    done->markCompleted(buffer);
    return done;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  BucketCallback callback_;
};

at::ScalarType dtype_of(DdpCommHook rounding) { return rounding == DdpCommHook::kFp16 ? at::kHalf : at::kBFloat16; }

}  // namespace

CommHookPtr make_comm_hook(const DdpSettings& settings, const comm::Communicator& communicator) {
  const ProcessGroupPtr process_group = communicator.process_group();
  const DdpCommHook wrapper = settings.comm_wrapper;
  require(wrapper == DdpCommHook::kNo || wrapper == DdpCommHook::kFp16 || wrapper == DdpCommHook::kBf16,
          Status::kInvalidArgument, "comm_wrapper is a PowerSGD hook; expected FP16, BF16 or NO");
  CommHookPtr hook;
  switch (settings.comm_hook.value) {
    case DdpCommHook::kNo:
      return std::make_shared<GradientAveraging>(process_group);  // a wrapper has nothing to wrap, as in the reference
    case DdpCommHook::kFp16:
    case DdpCommHook::kBf16:
      hook = std::make_shared<RoundingHook>(dtype_of(settings.comm_hook),
                                            std::make_shared<GradientAveraging>(process_group));
      break;
    case DdpCommHook::kPowerSgd:
    case DdpCommHook::kBatchedPowerSgd:
      hook = std::make_shared<PowerSgd>(settings.comm_state_option, settings.comm_hook == DdpCommHook::kBatchedPowerSgd,
                                        process_group);
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
