// SPDX-License-Identifier: Apache-2.0
// Owns a tensor handle that is passed to a callback or returned by it.
#pragma once

#include <memory>

#include "accel.h"

namespace accel::capi {

struct ReleaseTensor {
  void operator()(accel_tensor_t* tensor) const { accel_tensor_release(tensor); }
};
using TensorHandle = std::unique_ptr<accel_tensor_t, ReleaseTensor>;

}  // namespace accel::capi
