// SPDX-License-Identifier: Apache-2.0
#include "storage_operators.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "device.hpp"

namespace simulated_device {
namespace {

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::OptionalDeviceGuard guard_of(std::optional<c10::Device> device) {
  return c10::OptionalDeviceGuard(device && device->has_index() ? device : std::nullopt);
}

void refuse_pinned(std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool> pinned,
                 std::optional<at::MemoryFormat> format) {
  refuse_pinned(pinned);
  const auto guard = guard_of(device);
  usable_device(current_device());
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator(), kKeys, c10::dtype_or_default(dtype),
                                   format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool> pinned) {
  refuse_pinned(pinned);
  return empty_on_device(device.value_or(c10::Device(kDeviceType)), C10_AS_INTARRAYREF_SLOW(size),
                         C10_AS_INTARRAYREF_SLOW(stride), c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor unfold(const at::Tensor& tensor, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(tensor, dimension, size, step);
}

at::Tensor view_as_real(const at::Tensor& tensor) { return at::native::view_as_real(tensor); }
at::Tensor view_as_complex(const at::Tensor& tensor) { return at::native::view_as_complex(tensor); }

size_t bytes_needed(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::detail::computeStorageNbytes(size, stride, tensor.dtype().itemsize(),
                                          static_cast<size_t>(tensor.storage_offset()));
}

void grow_storage(const at::Tensor& tensor, size_t bytes) {
  if (tensor.numel() > 0 && bytes > tensor.storage().nbytes())
    resize_storage(*tensor.storage().unsafeGetStorageImpl(), bytes);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  resize_tensor(tensor, C10_AS_INTARRAYREF_SLOW(size));
  if (format) tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto strides = C10_AS_INTARRAYREF_SLOW(stride).vec();
  TORCH_CHECK(source.device().type() == kDeviceType, "expected a storage of ", tensor.device(), ", not one of ",
              source.device());
  if (strides.size() != sizes.size()) {
    strides.resize(sizes.size());
    int64_t step = 1;
    for (size_t dim = sizes.size(); dim-- > 0; step *= std::max<int64_t>(sizes[dim], 1)) strides[dim] = step;
  }
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(sizes, strides);
  grow_storage(tensor, bytes_needed(tensor, sizes, strides));
  return tensor;
}

at::Tensor& set_whole_storage(at::Tensor& tensor, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / tensor.dtype().itemsize());
  return set_storage(tensor, std::move(source), 0, {c10::SymInt(elements)}, {});
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  return set_storage(tensor, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_nothing(at::Tensor& tensor) {
  const auto guard = guard_of(tensor.device());
  at::Storage none(c10::Storage::use_byte_size_t(), 0, allocator().allocate(0), &allocator(), true);
  return set_storage(tensor, std::move(none), 0, {c10::SymInt(0)}, {});
}

// That a tensor of the CPU can become one of the device in place, as parameters do when a module moves: LibTorch allows
// it to its own devices.
bool can_become(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.layout() == c10::kStrided && other.layout() == c10::kStrided;
}

void record_stream(at::Tensor& tensor, at::Stream stream) {
  allocator().recordStream(tensor.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor empty_on_device(c10::Device device, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype) {
  const auto guard = guard_of(device);
  usable_device(current_device());
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys, dtype);
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const auto guard = guard_of(storage.device());
  c10::DataPtr data = allocator().allocate(bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes())) allocator().copy_data(data.get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

void resize_tensor(const at::Tensor& tensor, at::IntArrayRef size) {
  if (tensor.sizes() == size) return;
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  grow_storage(tensor, bytes_needed(tensor, tensor.sizes(), tensor.strides()));
}

void register_storage_operators(torch::Library& library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("unfold", unfold);
  library.impl("view_as_real", view_as_real);
  library.impl("view_as_complex", view_as_complex);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
  library.impl("_has_compatible_shallow_copy_type", can_become);
  library.impl("record_stream", record_stream);
}

}  // namespace simulated_device
