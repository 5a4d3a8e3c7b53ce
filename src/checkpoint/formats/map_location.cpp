// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/map_location.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <unordered_map>

#include "os/bus_error_guard.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

at::Storage moved_storage(const at::Storage& storage, c10::Device device) {
  const BusErrorGuard lost_pages;  // the storage may be that of a mapped file
  at::Tensor bytes = at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()));
  bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
  at::Storage moved = bytes.to(device).storage();
  lost_pages.check();
  return moved;
}

}  // namespace

c10::IValue map_location(const c10::IValue& value, c10::Device device) {
  tensor::require_device(device);
  std::unordered_map<const c10::StorageImpl*, at::Storage> moved;
  return tree::map_tensors(value, [&](const at::Tensor& tensor) {
    if (tensor.device() == device) return tensor;
    if (!tensor.has_storage()) return tensor.to(device);
    const c10::StorageImpl* const key = tensor.storage().unsafeGetStorageImpl();
    auto found = moved.find(key);
    if (found == moved.end()) found = moved.emplace(key, moved_storage(tensor.storage(), device)).first;
    at::Tensor view = at::empty({0}, tensor.options().device(device));
    view.set_(found->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
    return view;
  });
}

}  // namespace accel::checkpoint
