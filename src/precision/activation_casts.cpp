// SPDX-License-Identifier: Apache-2.0
#include "precision/activation_casts.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "tensor/external_alias.hpp"

namespace accel::precision {
namespace {

constexpr size_t kMostCasts = 8;  // as many as a block of a transformer makes between two readers

}  // namespace

bool ActivationCasts::Cast::is_of(const at::Tensor& now, const at::Tensor& held) const {
  return memory._unsafe_get_target() == now.storage().unsafeGetStorageImpl() && version == now._version() &&
         values_version == held._version() && held.sizes() == now.sizes() && held.device() == now.device() &&
         !(now.is_cpu() && tensor::is_externally_aliased(now));
}

at::Tensor ActivationCasts::find(const at::Tensor& activation, c10::ScalarType dtype) const {
  for (const Cast& cast : casts_) {
    if (cast.activation._unsafe_get_target() != activation.unsafeGetTensorImpl() || !activation.has_storage()) continue;
    auto locked = cast.values.lock();
    if (!locked) continue;
    const at::Tensor values(std::move(locked));
    if (values.scalar_type() != dtype || !cast.is_of(activation, values)) continue;
    // With the version of the memory, so that a change of the one is seen by the graph of the other.
    c10::TensorImpl& impl = *values.unsafeGetTensorImpl();
    return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/false));
  }
  return {};
}

void ActivationCasts::remember(const at::Tensor& activation, const at::Tensor& values) {
  if (!at::GradMode::is_enabled() || values.is_inference()) return;  // no graph will hold the values
  if (!activation.has_storage()) return;
  Cast cast{WeakTensor(activation.getIntrusivePtr()), WeakTensor(values.getIntrusivePtr()),
            activation.storage().getWeakStorageImpl(), activation._version(), values._version()};
  if (casts_.size() < kMostCasts) {
    casts_.push_back(std::move(cast));
    return;
  }
  casts_[oldest_] = std::move(cast);
  oldest_ = (oldest_ + 1) % kMostCasts;
}

}  // namespace accel::precision
