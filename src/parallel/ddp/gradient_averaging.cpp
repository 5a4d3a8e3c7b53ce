#include "parallel/ddp/gradient_averaging.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace accel::parallel {

c10::intrusive_ptr<c10::ivalue::Future> GradientAveraging::runHook(c10d::GradBucket& bucket) {
  std::vector<at::Tensor> tensors{bucket.getBufferRef()};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  // Nothing can overlap with the last bucket: this thread does the work, which saves two wake-ups per step.
  options.asyncOp = !bucket.isLast();
  const auto& buffer = tensors[0];
  return process_group_->getBackend(buffer.device().type())->allreduce(tensors, options)->getFuture();
}

at::Tensor GradientAveraging::parseHookResult(const c10::IValue& result) {
  return c10d::detail::parseCppCommHookResult(result);
}

}  // namespace accel::parallel
