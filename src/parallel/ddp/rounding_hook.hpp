// Compression hook: sends gradients in half precision.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "parallel/ddp/comm_hook.hpp"

namespace accel::parallel {

// Rounds the bucket for another hook, and copies its result back into the bucket at the end of backward.
class RoundingHook final : public c10d::CommHookInterface {
 public:
  RoundingHook(at::ScalarType dtype, CommHookPtr inner) : dtype_(dtype), inner_(std::move(inner)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  const CommHookPtr& inner() const { return inner_; }

 private:
  at::ScalarType dtype_;
  CommHookPtr inner_;
};

}  // namespace accel::parallel
