// Memory whose address the host program has: its own, or that of a tensor which was lent to it. It may write there at
// any time, and no version of a tensor tells.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tensor {

// From now on, for all tensors with that memory. Any thread.
void mark_exposed(const at::Tensor& tensor);
bool is_exposed(const at::Tensor& tensor);

}  // namespace accel::tensor
