// SPDX-License-Identifier: Apache-2.0
// Section 5: tensors of an application that uses LibTorch itself. include/accel_torch.hpp is the other side.
#include <ATen/core/Tensor.h>

#include <string_view>
#include <utility>

#include "accel.h"
#include "base/torch_compat.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/value.hpp"
#include "tensor/external_alias.hpp"

namespace accel::capi {
namespace {

using Reference = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Before the tensor is read: another version has other offsets.
bool is_callers_version(const char* version) { return std::string_view(version) == TORCH_VERSION; }

void check_callers_version(const char* torch_version) {
  require(is_callers_version(torch_version), Status::kUnsupported, "the caller was built for LibTorch ", torch_version,
          ", libaccel for LibTorch ", TORCH_VERSION,
          "; build both for the same version, or exchange tensors by DLPack");
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_tensor_from_torch(void* tensor_impl, const char* torch_version,
                                                      accel_tensor_t** out) {
  return guarded(__func__, [&] {
    check_pointer(tensor_impl, "tensor_impl");
    check_pointer(torch_version, "torch_version");
    // Before anything else can fail, so that the reference is always released.
    at::Tensor taken;
    if (is_callers_version(torch_version))
      taken = at::Tensor(Reference::reclaim(static_cast<c10::TensorImpl*>(tensor_impl)));
    check_pointer(out, "out");
    check_callers_version(torch_version);
    require(taken.defined(), Status::kInvalidArgument,
            "tensor_impl is an undefined tensor; expected one with elements");
    // Its program may change it by kernels that count no version, LibTorch's fused updates for example.
    tensor::mark_externally_aliased(taken);
    write_output(out, std::move(taken));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_share_torch(void* tensor_impl, const char* torch_version,
                                                       accel_tensor_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(tensor_impl, "tensor_impl");
    check_callers_version(check_pointer(torch_version, "torch_version"));
    at::Tensor shared(Reference::unsafe_reclaim_from_nonowning(static_cast<c10::TensorImpl*>(tensor_impl)));
    require(shared.defined(), Status::kInvalidArgument,
            "tensor_impl is an undefined tensor; expected one with elements");
    tensor::mark_externally_aliased(shared);  // as above
    return shared;
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_torch_impl(const accel_tensor_t* tensor, const char* torch_version,
                                                      void** out_tensor_impl) {
  return guarded(__func__, [&] {
    const at::Tensor& given = check(tensor, "tensor").tensor;
    check_pointer(out_tensor_impl, "out_tensor_impl");
    check_callers_version(check_pointer(torch_version, "torch_version"));
    *out_tensor_impl = given.unsafeGetTensorImpl();
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_to_torch(const accel_tensor_t* tensor, const char* torch_version,
                                                    void** out_tensor_impl) {
  return guarded(__func__, [&] {
    const at::Tensor& given = check(tensor, "tensor").tensor;
    check_pointer(torch_version, "torch_version");
    check_pointer(out_tensor_impl, "out_tensor_impl");
    check_callers_version(torch_version);
    *out_tensor_impl = at::Tensor(given).unsafeReleaseTensorImpl();
  });
}

}  // namespace accel::capi
