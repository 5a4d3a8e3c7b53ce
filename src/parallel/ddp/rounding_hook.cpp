// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/rounding_hook.hpp"

#include <ATen/core/Tensor.h>

namespace accel::parallel {

CommHook::Finish RoundingHook::start(const GradientBucket& bucket) {
  GradientBucket rounded = bucket;
  rounded.memory = bucket.memory.to(dtype_);
  return [full = bucket.memory, half = rounded.memory, finish = inner_->start(rounded)] {
    finish();
    full.copy_(half);
  };
}

}  // namespace accel::parallel
