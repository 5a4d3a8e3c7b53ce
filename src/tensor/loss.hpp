#pragma once

#include <ATen/core/Tensor.h>

namespace accel::tensor {

// Mean cross entropy of class scores [..., classes] and int64 labels [...]; label -100 is left out.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace accel::tensor
