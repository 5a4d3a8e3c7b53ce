// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_layer.hpp"

#include <utility>

#include "tensor/external_alias.hpp"

namespace accel::nn {

using kernels::Fp8Granularity;
using kernels::Fp8Matrix;

Fp8Layer::Fp8Layer(const Fp8Scheme& scheme, std::shared_ptr<Fp8Overflows> overflows)
    : scheme_(scheme), overflows_(std::move(overflows)) {}

Fp8Matrix Fp8Layer::cast(Fp8Role role, const at::Tensor& rows, bool of_columns) {
  return fp8_cast(rows, {scheme_.format(role), scheme_.granularity, scheme_.margin}, of_columns,
                  delayed_[static_cast<size_t>(role)], *overflows_);
}

bool Fp8Layer::is_current(const at::Tensor& weight) const {
  return memory_ && memory_->_unsafe_get_target() == weight.storage().unsafeGetStorageImpl() &&
         weight_->_unsafe_get_target() == weight.unsafeGetTensorImpl() && version_ == weight._version();
}

void Fp8Layer::begin(const at::Tensor& weight) {
  by_rows_ = by_columns_ = {};
  weight_ = WeakTensor(weight.getIntrusivePtr());
  memory_ = weight.storage().getWeakStorageImpl();
  version_ = weight._version();
}

void Fp8Layer::keep_casts(bool keeps) {
  const std::lock_guard lock(mutex_);
  keeps_casts_ = keeps;
  if (keeps) return;
  memory_.reset();
  by_rows_ = by_columns_ = {};
}

void Fp8Layer::start_accumulation_window() {
  const std::lock_guard lock(mutex_);
  if (!memory_) return;
  const auto weight = weight_->lock();
  if (!weight || tensor::is_externally_aliased(at::Tensor(weight))) memory_.reset();
}

void Fp8Layer::give(const at::Tensor& weight, Fp8Matrix cast) {
  const std::lock_guard lock(mutex_);
  begin(weight);
  if (!cast.values.defined()) return;
  if (scheme_.granularity == Fp8Granularity::kTensor) by_columns_ = transposed(cast);
  by_rows_ = std::move(cast);
}

Fp8Matrix Fp8Layer::cast_weight(const at::Tensor& weight, bool of_columns) {
  if (weight.is_inference()) return cast(Fp8Role::kWeight, weight, of_columns);  // has no version
  const std::lock_guard lock(mutex_);
  if (!is_current(weight)) begin(weight);
  Fp8Matrix& wanted = of_columns ? by_columns_ : by_rows_;
  if (wanted.values.defined()) return wanted;
  const Fp8Matrix made = cast(Fp8Role::kWeight, weight, of_columns);
  if (!keeps_casts_) return made;
  wanted = made;
  if (scheme_.granularity == Fp8Granularity::kTensor) (of_columns ? by_rows_ : by_columns_) = transposed(made);
  return made;
}

}  // namespace accel::nn
