// The default communication hook: averages a gradient bucket over the ranks.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace accel::parallel {

// The collective divides in the pass that adds. Without this hook the Reducer would divide each gradient in a pass of
// its own.
class GradientAveraging final : public c10d::CommHookInterface {
 public:
  explicit GradientAveraging(c10::intrusive_ptr<c10d::ProcessGroup> process_group)
      : process_group_(std::move(process_group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

}  // namespace accel::parallel
