// SPDX-License-Identifier: Apache-2.0
// DLPack: exchange of tensors between array libraries without a copy.
#pragma once

#include <ATen/core/Tensor.h>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace accel::tensor {

// Take ownership of the tensor: its deleter runs after the last use of the memory, or at once if these throw.
// kUnsupported for an unknown version, device or dtype.
at::Tensor from_dlpack(DLManagedTensorVersioned* managed);
at::Tensor from_dlpack(DLManagedTensor* managed);

// Export the tensor; the result is freed by its own deleter.
DLManagedTensorVersioned* to_dlpack_versioned(const at::Tensor& tensor);
DLManagedTensor* to_dlpack(const at::Tensor& tensor);

}  // namespace accel::tensor
