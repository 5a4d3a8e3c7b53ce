#include "parallel/ddp/rounding_hook.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace accel::parallel {

c10::intrusive_ptr<c10::ivalue::Future> RoundingHook::runHook(c10d::GradBucket& bucket) {
  const at::Tensor full = bucket.getBuffer();
  at::Tensor rounded = full.to(dtype_);
  bucket.setBuffer(rounded);
  // The result has two parts, so that the thread of backward waits for the exchange and makes the copy.
  auto done = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
  done->markCompleted(c10::ivalue::Tuple::create({c10::IValue(inner_->runHook(bucket)), full}));
  return done;
}

at::Tensor RoundingHook::parseHookResult(const c10::IValue& result) {
  const auto& parts = result.toTupleRef().elements();
  const auto exchanged = parts[0].toFuture();
  const at::Tensor full = parts[1].toTensor();
  exchanged->waitAndThrow();
  full.copy_(inner_->parseHookResult(exchanged->value()));
  return full;
}

}  // namespace accel::parallel
