// SPDX-License-Identifier: Apache-2.0
// Section 5: DLPack.
#include "tensor/dlpack.hpp"

#include <ATen/dlpack.h>

#include <utility>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/value.hpp"

namespace accel::capi {
namespace {

// `managed` is always consumed: by the engine, or here if `out` is missing.
template <typename Managed>
accel_status_t take(const char* function, Managed* managed, accel_tensor_t** out) {
  return guarded(function, [&] {
    if (out == nullptr && managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
    check_pointer(managed, "tensor");
    check_pointer(out, "out");
    write_output(out, tensor::from_dlpack(managed));
  });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_tensor_from_dlpack(DLManagedTensorVersioned* tensor, accel_tensor_t** out) {
  return take(__func__, tensor, out);
}

ACCEL_FUNCTION accel_status_t accel_tensor_from_dlpack_unversioned(DLManagedTensor* tensor, accel_tensor_t** out) {
  return take(__func__, tensor, out);
}

ACCEL_FUNCTION accel_status_t accel_tensor_to_dlpack(const accel_tensor_t* tensor, DLManagedTensorVersioned** out) {
  return guarded(__func__, [&] {
    const at::Tensor& lent = check(tensor, "tensor").tensor;
    check_pointer(out, "out");
    *out = tensor::to_dlpack_versioned(lent);
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_to_dlpack_unversioned(const accel_tensor_t* tensor, DLManagedTensor** out) {
  return guarded(__func__, [&] {
    const at::Tensor& lent = check(tensor, "tensor").tensor;
    check_pointer(out, "out");
    *out = tensor::to_dlpack(lent);
  });
}

}  // namespace accel::capi
