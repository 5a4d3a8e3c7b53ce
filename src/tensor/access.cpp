// SPDX-License-Identifier: Apache-2.0
#include "tensor/access.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

#include <limits>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype.hpp"
#include "tensor/external_alias.hpp"

namespace accel::tensor {
namespace {

c10::Scalar single_element(const at::Tensor& tensor) {
  require(tensor.numel() == 1, Status::kShapeMismatch, "a tensor of shape ", tensor.sizes(), " has ", tensor.numel(),
          " elements; expected one");
  require(!tensor.is_meta(), Status::kInvalidState,
          "a tensor on device meta has no elements; expected one with memory");
  return tensor.item();
}

}  // namespace

double single_number(const at::Tensor& tensor) {
  require(!tensor.is_complex(), Status::kTypeMismatch, "a tensor of ", dtype_name(tensor.scalar_type()),
          " has no real number; take its real part");
  return single_element(tensor).toDouble();
}

int64_t single_integer(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  require(c10::isIntegralType(dtype, /*includeBool=*/true), Status::kTypeMismatch, "a tensor of ", dtype_name(dtype),
          " has no exact integer; expected an integer or bool dtype");
  const c10::Scalar element = single_element(tensor);
  require(dtype != c10::ScalarType::UInt64 ||
              element.toUInt64() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
          Status::kTypeMismatch, "a uint64 element is larger than int64 can hold; read it through its data");
  return element.toLong();
}

void* data_pointer(const at::Tensor& tensor) {
  require(!tensor.is_meta() && tensor.has_storage(), Status::kInvalidState, "a tensor of layout ", tensor.layout(),
          " on device ", tensor.device(),
          " has no memory of its own; expected a strided tensor of a device with memory");
  mark_externally_aliased(tensor);
  return tensor.mutable_data_ptr();
}

void* elements(const at::Tensor& tensor, c10::ScalarType dtype) {
  require(tensor.scalar_type() == dtype, Status::kTypeMismatch, "the tensor is of ", dtype_name(tensor.scalar_type()),
          " and is to be read as ", dtype_name(dtype), "; expected the same, accel_tensor_to() converts");
  require(tensor.is_cpu() || tensor.is_meta(), Status::kUnsupported, "the tensor is on ", tensor.device(),
          "; expected one on the CPU, accel_tensor_to() copies it there");
  require(tensor.is_contiguous(), Status::kInvalidState, "the tensor of shape ", tensor.sizes(), " has strides ",
          tensor.strides(), "; expected elements without gaps, accel_tensor_contiguous() makes them");
  return data_pointer(tensor);
}

void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

at::Tensor convert(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype, c10::Device device,
                   bool non_blocking) {
  require_device(device);
  return tensor.to(tensor.options().dtype(dtype.value_or(tensor.scalar_type())).device(device), non_blocking);
}

void copy_elements(const at::Tensor& target, const at::Tensor& source) {
  require(at::is_expandable_to(source.sizes(), target.sizes()), Status::kShapeMismatch, "shape ", source.sizes(),
          " cannot be copied to shape ", target.sizes(), "; expected the same shape or one that broadcasts to it");
  target.copy_(source);
}

void set_requires_grad(const at::Tensor& tensor, bool requires_grad) {
  require(tensor.is_leaf(), Status::kInvalidState,
          "the tensor is the result of an operator; expected a leaf: detach it first");
  require(!requires_grad || tensor.is_floating_point() || tensor.is_complex(), Status::kTypeMismatch, "a tensor of ",
          dtype_name(tensor.scalar_type()), " can have no gradient; expected a floating dtype");
  tensor.set_requires_grad(requires_grad);
}

void set_grad(const at::Tensor& tensor, const at::Tensor& gradient) {
  require(tensor.is_leaf(), Status::kInvalidState, "the tensor is the result of an operator; expected a leaf");
  if (gradient.defined()) {
    require(gradient.sizes() == tensor.sizes(), Status::kShapeMismatch, "the gradient has shape ", gradient.sizes(),
            "; expected ", tensor.sizes(), " as its tensor");
    require(gradient.scalar_type() == tensor.scalar_type() && gradient.device() == tensor.device(),
            Status::kTypeMismatch, "the gradient is ", dtype_name(gradient.scalar_type()), " on ", gradient.device(),
            "; expected ", dtype_name(tensor.scalar_type()), " on ", tensor.device(), " as its tensor");
  }
  tensor.mutable_grad() = gradient;
}

}  // namespace accel::tensor
