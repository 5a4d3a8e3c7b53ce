// SPDX-License-Identifier: Apache-2.0
// Gives a tensor other data, of any shape, dtype and device.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tensor {

// Does `tensor.data = data` as in Python, but autograd's node for the gradient stays although dtype and device may
// change. The two share memory afterwards.
inline void set_data(const at::Tensor& tensor, const at::Tensor& data) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

}  // namespace accel::tensor
