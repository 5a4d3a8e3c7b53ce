// SPDX-License-Identifier: Apache-2.0
// Operators that make tensors, views and storages, without reading any element.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch {
class Library;
}

namespace simulated_device {

void register_storage_operators(torch::Library& library);
// What was in the storage stays, as far as there is room.
void resize_storage(c10::StorageImpl& storage, size_t bytes);
void resize_tensor(const at::Tensor& tensor, at::IntArrayRef size);

at::Tensor empty_on_device(c10::Device device, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype);

}  // namespace simulated_device
