// SPDX-License-Identifier: Apache-2.0
// Compression hook: sends gradients in half precision.
#pragma once

#include <utility>

#include "parallel/ddp/comm_hook.hpp"

namespace accel::parallel {

// Rounds the bucket for another hook, and copies its result back into the bucket at the end of backward.
class RoundingHook final : public CommHook {
 public:
  RoundingHook(at::ScalarType dtype, CommHookPtr inner) : dtype_(dtype), inner_(std::move(inner)) {}

  Finish start(const GradientBucket& bucket) override;

  const CommHookPtr& inner() const { return inner_; }

 private:
  const at::ScalarType dtype_;
  const CommHookPtr inner_;
};

}  // namespace accel::parallel
