// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/memory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/dtype.hpp"
#include "tensor/external_alias.hpp"

namespace accel::tensor {
namespace {

constexpr size_t kMostDimensions = 64;  // LibTorch's masks of dimensions have 64 bits

at::TensorOptions checked_options(c10::IntArrayRef shape, c10::ScalarType dtype, c10::Device device) {
  check_shape(shape, dtype);
  require_device(device);
  return at::TensorOptions().dtype(dtype).device(device);
}

// The extent of the strides must not overflow either; LibTorch has no negative strides.
void check_strides(c10::IntArrayRef shape, c10::IntArrayRef strides, size_t element_size) {
  int64_t last = 0;
  bool overflows = false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    require(strides[dim] >= 0, Status::kInvalidArgument, "stride ", strides[dim], " of dimension ", dim,
            " is negative; expected strides from 0: flip the tensor instead");
    int64_t reach = 0;
    overflows |= __builtin_mul_overflow(std::max<int64_t>(shape[dim] - 1, 0), strides[dim], &reach);
    overflows |= __builtin_add_overflow(last, reach, &last);
  }
  overflows |= __builtin_mul_overflow(last, static_cast<int64_t>(element_size), &last);
  require(!overflows, Status::kInvalidArgument, "strides ", strides,
          " reach beyond any memory; expected strides in elements");
}

}  // namespace

void check_shape(c10::IntArrayRef shape, c10::ScalarType dtype) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool overflows = false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    require(shape[dim] >= 0, Status::kInvalidArgument, "size ", shape[dim], " of dimension ", dim,
            " is negative; expected sizes from 0");
    overflows |= __builtin_mul_overflow(bytes, std::max<int64_t>(shape[dim], 1), &bytes);
  }
  require(!overflows, Status::kInvalidArgument, "shape ", shape, " of ", dtype_name(dtype),
          " has more bytes than 64 bits can count; expected a smaller one");
}

c10::IntArrayRef shape_of(const int64_t* sizes, size_t ndim) {
  require(ndim <= kMostDimensions, Status::kInvalidArgument, "ndim is ", ndim, "; expected at most ", kMostDimensions);
  require(sizes != nullptr || ndim == 0, Status::kInvalidArgument, "shape is NULL; expected ", ndim, " sizes");
  return c10::IntArrayRef(sizes, ndim);
}

at::Tensor empty(c10::IntArrayRef shape, c10::ScalarType dtype, c10::Device device) {
  return at::empty(shape, checked_options(shape, dtype, device));
}

at::Tensor full(c10::IntArrayRef shape, double number, c10::ScalarType dtype, c10::Device device) {
  return at::full(shape, number, checked_options(shape, dtype, device));
}

at::Tensor randn(c10::IntArrayRef shape, c10::ScalarType dtype, c10::Device device) {
  require(c10::isFloatingType(dtype) || c10::isComplexType(dtype), Status::kInvalidArgument, "dtype ",
          dtype_name(dtype), " cannot hold normal numbers; expected a floating dtype");
  return at::randn(shape, checked_options(shape, dtype, device));
}

at::Tensor randint(int64_t low, int64_t high, c10::IntArrayRef shape) {
  require(low < high, Status::kInvalidArgument, "the range [", low, ", ", high, ") is empty; expected low below high");
  return at::randint(low, high, shape, checked_options(shape, c10::ScalarType::Long, c10::DeviceType::CPU));
}

at::Tensor from_data(const void* data, c10::IntArrayRef shape, c10::ScalarType dtype) {
  at::Tensor tensor = empty(shape, dtype, c10::DeviceType::CPU);
  require(data != nullptr || tensor.numel() == 0, Status::kInvalidArgument, "data is NULL; expected ", tensor.numel(),
          " elements of ", dtype_name(dtype));
  if (tensor.numel() > 0) std::memcpy(tensor.mutable_data_ptr(), data, tensor.nbytes());
  return tensor;
}

at::Tensor from_blob(void* data, c10::IntArrayRef shape, const int64_t* strides, c10::ScalarType dtype,
                     c10::Device device, std::shared_ptr<void> owner) {
  const at::TensorOptions options = checked_options(shape, dtype, device);
  require(!device.is_meta(), Status::kInvalidArgument, "device meta has no memory; expected cpu or an accelerator");
  require(data != nullptr || std::find(shape.begin(), shape.end(), 0) != shape.end(), Status::kInvalidArgument,
          "data is NULL; expected the elements of shape ", shape);
  const size_t element_size = c10::elementSize(dtype);
  const size_t alignment = c10::isComplexType(dtype) ? element_size / 2 : element_size;
  require(reinterpret_cast<uintptr_t>(data) % alignment == 0, Status::kInvalidArgument, "data at ", data,
          " is not aligned to ", alignment, " bytes, as ", dtype_name(dtype), " needs; copy it with from_data");
  // The function owns the owner; LibTorch destroys it with the storage.
  const auto release = [owner = std::move(owner)](void*) {};
  at::Tensor tensor;
  if (strides == nullptr) {
    tensor = at::from_blob(data, shape, release, options, device);
  } else {
    const c10::IntArrayRef given(strides, shape.size());
    check_strides(shape, given, element_size);
    tensor = at::from_blob(data, shape, given, release, options, device);
  }
  mark_externally_aliased(tensor);
  return tensor;
}

}  // namespace accel::tensor
