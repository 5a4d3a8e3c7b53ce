// SPDX-License-Identifier: Apache-2.0
#include "tensor/dlpack.hpp"

#include <ATen/DLConvertor.h>
#include <ATen/dlpack.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/memory.hpp"
#include "tensor/dtype.hpp"
#include "tensor/external_alias.hpp"

namespace accel::tensor {
namespace {

template <typename Managed>
std::shared_ptr<void> take(Managed* managed) {
  return std::shared_ptr<void>(managed, [](void* given) {
    auto* const taken = static_cast<Managed*>(given);
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
}

// Pinned memory is the host's; LibTorch knows it by its address.
bool is_host_memory(DLDeviceType type) {
  return type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost;  // DLPack's names
}

c10::Device device_of(const DLTensor& tensor) {
  if (is_host_memory(tensor.device.device_type)) return c10::DeviceType::CPU;
  try {
    const auto index = static_cast<c10::DeviceIndex>(tensor.device.device_id);
    const c10::Device device = at::dlDeviceToTorchDevice(tensor.device.device_type, index, tensor.data);
    require_device(device);
    return device;
  } catch (const Error& error) {
    fail(error.status(), "the DLPack tensor is on device type ", static_cast<int>(tensor.device.device_type), ": ",
         error.message());
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "the DLPack tensor is on device type ", static_cast<int>(tensor.device.device_type),
         " with number ", tensor.device.device_id,
         ", which LibTorch does not know; expected 1 (the CPU), 12 (an "
         "out-of-tree device) or that of another device of this process");
  }
}

c10::ScalarType dtype_of(const DLDataType& dtype) {
  try {
    return at::toScalarType(dtype);
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "the DLPack tensor has dtype code ", static_cast<int>(dtype.code), " with ",
         static_cast<int>(dtype.bits), " bits and ", dtype.lanes, " lanes; expected a dtype of LibTorch with one lane");
  }
}

// LibTorch's own conversion ignores byte_offset.
at::Tensor from_dl_tensor(const DLTensor& tensor, std::shared_ptr<void> owner) {
  require(tensor.ndim >= 0, Status::kInvalidArgument, "the DLPack tensor has ", tensor.ndim,
          " dimensions; expected 0 or more");
  const c10::IntArrayRef shape = shape_of(tensor.shape, static_cast<size_t>(tensor.ndim));
  auto* const data = static_cast<char*>(tensor.data);
  return from_blob(data == nullptr ? nullptr : data + tensor.byte_offset, shape, tensor.strides, dtype_of(tensor.dtype),
                   device_of(tensor), std::move(owner));
}

void check_lendable(const at::Tensor& tensor) {
  require(!tensor.requires_grad(), Status::kInvalidArgument,
          "the tensor requires gradients, which DLPack cannot carry; detach it first");
  require(tensor.layout() == c10::kStrided && !tensor.is_meta(), Status::kUnsupported, "a tensor of layout ",
          tensor.layout(), " on device ", tensor.device(),
          " cannot be lent; expected a strided tensor on a device with memory");
  require(!tensor.is_conj() && !tensor.is_neg(), Status::kUnsupported,
          "the tensor is a lazy conjugate or negative; copy it with aten::resolve_conj and aten::resolve_neg first");
  try {
    at::getDLDataType(tensor);
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "dtype ", dtype_name(tensor.scalar_type()),
         " is not known to DLPack; convert the tensor first");
  }
  try {
    at::torchDeviceToDLDevice(tensor.device());
  } catch (const c10::Error&) {
    fail(Status::kUnsupported, "device ", tensor.device(), " is not known to DLPack; copy the tensor to the CPU first");
  }
}

}  // namespace

at::Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  std::shared_ptr<void> owner = take(managed);
  // Fields after the version and the deleter may differ in another version.
  require(managed->version.major == DLPACK_MAJOR_VERSION, Status::kUnsupported, "the DLPack tensor has version ",
          managed->version.major, ".", managed->version.minor, "; expected ", DLPACK_MAJOR_VERSION, ".x");
  return from_dl_tensor(managed->dl_tensor, std::move(owner));
}

at::Tensor from_dlpack(DLManagedTensor* managed) { return from_dl_tensor(managed->dl_tensor, take(managed)); }

DLManagedTensorVersioned* to_dlpack_versioned(const at::Tensor& tensor) {
  check_lendable(tensor);
  mark_externally_aliased(tensor);
  return at::toDLPackVersioned(tensor);
}

DLManagedTensor* to_dlpack(const at::Tensor& tensor) {
  check_lendable(tensor);
  mark_externally_aliased(tensor);
  return at::toDLPack(tensor);
}

}  // namespace accel::tensor
