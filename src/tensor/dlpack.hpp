// DLPack, the way in which array libraries lend each other memory.
#pragma once

#include <ATen/core/Tensor.h>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace accel::tensor {

// Take the tensor over: its deleter runs with the last use of the memory, at once when these throw. kUnsupported for a
// version, device or dtype that is not known.
at::Tensor from_dlpack(DLManagedTensorVersioned* managed);
at::Tensor from_dlpack(DLManagedTensor* managed);

// Lend the tensor; the result is freed by its own deleter.
DLManagedTensorVersioned* to_dlpack_versioned(const at::Tensor& tensor);
DLManagedTensor* to_dlpack(const at::Tensor& tensor);

}  // namespace accel::tensor
