// SPDX-License-Identifier: Apache-2.0
#include "host_tensor.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <cstring>

#include "device.hpp"

namespace simulated_device {

bool is_on_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDeviceType; }

at::Tensor host_alias(const at::Tensor& tensor) {
  const at::Storage& storage = tensor.storage();
  void* const memory = operator_address(storage.data());
  at::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(memory, at::kCPU), nullptr, false);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = alias.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return alias;
}

at::Tensor host_copy(const at::Tensor& tensor, bool with_elements) {
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  if (!with_elements) return copy;
  const at::Tensor from = host_alias(tensor);
  if (copy.numel() == 0 || copy.is_non_overlapping_and_dense())
    copy_on_host(copy, from);
  else  // with the gaps, or elements that are in several places
    std::memcpy(copy.mutable_data_ptr(), from.const_data_ptr(), copy.storage().nbytes());
  return copy;
}

void poison(const at::Tensor& host) {
  if (host.numel() == 0) return;
  const at::Tensor poison = at::empty_strided(host.sizes(), host.strides(), host.options());
  std::memset(poison.mutable_data_ptr(), kPoison, poison.storage().nbytes());
  copy_on_host(host, poison);
}

void copy_on_host(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  if (to.dtype() == from.dtype() && to.sizes() == from.sizes() && to.strides() == from.strides() &&
      to.is_non_overlapping_and_dense() && to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  to.copy_(from);
}

}  // namespace simulated_device
