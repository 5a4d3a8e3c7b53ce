// SPDX-License-Identifier: Apache-2.0
// Section 5: tensors.
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/tensor.hpp"
#include "capi/models/device.hpp"
#include "capi/training/backward_options.hpp"
#include "capi/values/value.hpp"
#include "tensor/access.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dtype.hpp"

namespace accel::capi {
namespace {

// For getters: checks the tensor and the output.
template <typename Value, typename Read>
accel_status_t read_tensor(const char* function, const accel_tensor_t* tensor, Value* out, Read read) {
  return guarded(function, out, [&] { return read(check(tensor, "tensor").tensor); });
}

// Also makes a new tensor from the one that is read.
template <typename Make>
accel_status_t derive_tensor(const char* function, const accel_tensor_t* tensor, accel_tensor_t** out, Make make) {
  return read_tensor(function, tensor, out, [&](const at::Tensor& value) { return new_tensor(make(value)); });
}

template <typename Make>
accel_status_t create_tensor(const char* function, accel_tensor_t** out, Make make) {
  return guarded(function, out, [&] { return new_tensor(make()); });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_tensor_empty(const int64_t* shape, size_t ndim, accel_dtype_t dtype,
                                                 const accel_device_t* device, accel_tensor_t** out) {
  return create_tensor(__func__, out, [&] {
    return tensor::empty(tensor::shape_of(shape, ndim), tensor::dtype_from_number(dtype), to_device(device));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_full(const int64_t* shape, size_t ndim, double number, accel_dtype_t dtype,
                                                const accel_device_t* device, accel_tensor_t** out) {
  return create_tensor(__func__, out, [&] {
    return tensor::full(tensor::shape_of(shape, ndim), number, tensor::dtype_from_number(dtype), to_device(device));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_randn(const int64_t* shape, size_t ndim, accel_dtype_t dtype,
                                                 const accel_device_t* device, accel_tensor_t** out) {
  return create_tensor(__func__, out, [&] {
    return tensor::randn(tensor::shape_of(shape, ndim), tensor::dtype_from_number(dtype), to_device(device));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_randint(int64_t low, int64_t high, const int64_t* shape, size_t ndim,
                                                   accel_tensor_t** out) {
  return create_tensor(__func__, out, [&] { return tensor::randint(low, high, tensor::shape_of(shape, ndim)); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_from_data(const void* data, const int64_t* shape, size_t ndim,
                                                     accel_dtype_t dtype, accel_tensor_t** out) {
  return create_tensor(__func__, out, [&] {
    return tensor::from_data(data, tensor::shape_of(shape, ndim), tensor::dtype_from_number(dtype));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_from_blob(void* data, const int64_t* shape, size_t ndim,
                                                     const int64_t* strides, accel_dtype_t dtype,
                                                     const accel_device_t* device, void* user_data,
                                                     accel_destroy_fn destroy, accel_tensor_t** out) {
  return guarded(__func__, [&] {
    // First, so that destroy runs whatever fails.
    std::shared_ptr<void> owner(user_data, [destroy](void* held) {
      if (destroy != nullptr) destroy(held);
    });
    check_pointer(out, "out");
    write_output(out, tensor::from_blob(data, tensor::shape_of(shape, ndim), strides, tensor::dtype_from_number(dtype),
                                        to_device(device), std::move(owner)));
  });
}

ACCEL_FUNCTION accel_tensor_t* accel_tensor_retain(accel_tensor_t* tensor) {
  return retain_handle(__func__, tensor, "tensor");
}

ACCEL_FUNCTION void accel_tensor_release(accel_tensor_t* tensor) { release_handle(tensor); }

ACCEL_FUNCTION accel_status_t accel_tensor_ndim(const accel_tensor_t* tensor, size_t* out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return static_cast<size_t>(value.dim()); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_shape(const accel_tensor_t* tensor, const int64_t** out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.sizes().data(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_strides(const accel_tensor_t* tensor, const int64_t** out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.strides().data(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_dtype(const accel_tensor_t* tensor, accel_dtype_t* out) {
  return read_tensor(__func__, tensor, out,
                     [](const at::Tensor& value) { return tensor::dtype_number(value.scalar_type()); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_device(const accel_tensor_t* tensor, accel_device_t* out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return from_device(value.device()); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_numel(const accel_tensor_t* tensor, int64_t* out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.numel(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_nbytes(const accel_tensor_t* tensor, size_t* out) {
  return read_tensor(__func__, tensor, out,
                     [](const at::Tensor& value) { return static_cast<size_t>(value.numel()) * value.element_size(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_data(const accel_tensor_t* tensor, void** out) {
  return read_tensor(__func__, tensor, out, tensor::data_pointer);
}

ACCEL_FUNCTION accel_status_t accel_tensor_elements(const accel_tensor_t* tensor, accel_dtype_t dtype,
                                                    void** out_elements, int64_t* out_count) {
  return guarded(__func__, [&] {
    const at::Tensor& read = check(tensor, "tensor").tensor;
    check_pointer(out_elements, "out_elements");
    check_pointer(out_count, "out_count");
    *out_elements = tensor::elements(read, tensor::dtype_from_number(dtype));
    *out_count = read.numel();
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_item(const accel_tensor_t* tensor, double* out) {
  return read_tensor(__func__, tensor, out, tensor::single_number);
}

ACCEL_FUNCTION accel_status_t accel_tensor_item_int(const accel_tensor_t* tensor, int64_t* out) {
  return read_tensor(__func__, tensor, out, tensor::single_integer);
}

ACCEL_FUNCTION accel_status_t accel_tensor_is_contiguous(const accel_tensor_t* tensor, int32_t* out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.is_contiguous() ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_tensor_requires_grad(const accel_tensor_t* tensor, int32_t* out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.requires_grad() ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_tensor_set_requires_grad(accel_tensor_t* tensor, int32_t requires_grad) {
  return guarded(__func__, [&] {
    tensor::set_requires_grad(check(tensor, "tensor").tensor, read_flag(requires_grad, "requires_grad"));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_grad(const accel_tensor_t* tensor, accel_tensor_t** out) {
  return read_tensor(__func__, tensor, out, [](const at::Tensor& value) {
    const at::Tensor& gradient = value.grad();
    return gradient.defined() ? new_tensor(gradient) : nullptr;
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_set_grad(accel_tensor_t* tensor, accel_tensor_t* gradient) {
  return guarded(__func__, [&] {
    tensor::set_grad(check(tensor, "tensor").tensor,
                     gradient == nullptr ? at::Tensor() : check(gradient, "gradient").tensor);
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_backward(accel_tensor_t* tensor, const accel_backward_options_t* options) {
  return guarded(__func__, [&] {
    const at::Tensor& value = check(tensor, "tensor").tensor;
    require(value.requires_grad(), Status::kInvalidArgument,
            "the tensor was computed without gradients; expected one whose inputs require them");
    const tensor::BackwardOptions given = read_backward_options(options);
    tensor::check_backward(value, given);
    tensor::backward(value, given);
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_to(const accel_tensor_t* tensor, accel_dtype_t dtype,
                                              const accel_device_t* device, int32_t non_blocking,
                                              accel_tensor_t** out) {
  return derive_tensor(__func__, tensor, out, [&](const at::Tensor& value) {
    std::optional<c10::ScalarType> goal;
    if (dtype != ACCEL_UNSET) goal = tensor::dtype_from_number(dtype);
    return tensor::convert(value, goal, to_device(device), read_flag(non_blocking, "non_blocking"));
  });
}

ACCEL_FUNCTION accel_status_t accel_tensor_copy(accel_tensor_t* tensor, const accel_tensor_t* source) {
  return guarded(__func__,
                 [&] { tensor::copy_elements(check(tensor, "tensor").tensor, check(source, "source").tensor); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_clone(const accel_tensor_t* tensor, accel_tensor_t** out) {
  return derive_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.clone(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_detach(const accel_tensor_t* tensor, accel_tensor_t** out) {
  return derive_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.detach(); });
}

ACCEL_FUNCTION accel_status_t accel_tensor_contiguous(const accel_tensor_t* tensor, accel_tensor_t** out) {
  return derive_tensor(__func__, tensor, out, [](const at::Tensor& value) { return value.contiguous(); });
}

}  // namespace accel::capi
