#include "parallel/ddp/rounding_hook.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace accel::parallel {

c10::intrusive_ptr<c10::ivalue::Future> RoundingHook::runHook(c10d::GradBucket& bucket) {
  const at::Tensor full = bucket.getBuffer();
  at::Tensor rounded = full.to(dtype_);
  bucket.setBuffer(rounded);
  // The callback would run on the progress thread, so the thread of backward makes the copy.
  return inner_->runHook(bucket)->then(
      [full](c10::ivalue::Future& future) {
        return c10::ivalue::Tuple::create({future.value(), full});
      },
      c10::TupleType::create({c10::AnyType::get(), c10::TensorType::get()}));
}

at::Tensor RoundingHook::parseHookResult(const c10::IValue& result) {
  const auto& parts = result.toTupleRef().elements();
  const at::Tensor full = parts[1].toTensor();
  full.copy_(inner_->parseHookResult(parts[0]));
  return full;
}

}  // namespace accel::parallel
