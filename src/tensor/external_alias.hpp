// SPDX-License-Identifier: Apache-2.0
// Externally aliased storage: memory whose address the application has, because it is its own or was exported. It may
// write there at any time without changing a tensor's version.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tensor {

// For all tensors with the same storage. Any thread.
void mark_externally_aliased(const at::Tensor& tensor);
bool is_externally_aliased(const at::Tensor& tensor);

}  // namespace accel::tensor
