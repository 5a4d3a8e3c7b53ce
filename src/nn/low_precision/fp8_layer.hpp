// SPDX-License-Identifier: Apache-2.0
// Fp8 layer: how the three products of a linear layer are computed, and the cast of its weight, which is cached until
// the weight changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>

#include "nn/low_precision/fp8_cast.hpp"

namespace accel::nn {

enum class Fp8Role : uint8_t { kInput, kWeight, kGradient };  // of an operand; the gradient is that of the output
inline constexpr int64_t kFp8Roles = 3;

// The products that are not in 8 bits are computed from the unrounded operands, in the dtype of the output.
struct Fp8Scheme {
  at::ScalarType operands = at::kFloat8_e4m3fn, gradients = at::kFloat8_e5m2;
  kernels::Fp8Granularity granularity = kernels::Fp8Granularity::kTensor;
  int64_t margin = 0;
  bool forward = true, input_gradient = true, weight_gradient = true;

  at::ScalarType format(Fp8Role role) const { return role == Fp8Role::kGradient ? gradients : operands; }
};

class Fp8Layer {
 public:
  Fp8Layer(const Fp8Scheme& scheme, std::shared_ptr<Fp8Overflows> overflows);

  const Fp8Scheme& scheme() const { return scheme_; }
  void set_delayed(Fp8Role role, DelayedScale scale) { delayed_[static_cast<size_t>(role)] = std::move(scale); }

  // Whether a cast of the weight is cached; otherwise its values are somewhere else between the products.
  bool keeps_casts() const { return keeps_casts_; }
  void keep_casts(bool keeps);
  // Casts of a weight that is written by address are made anew.
  void start_accumulation_window();
  // A cast of the weight by its rows that somebody else has made, for its present values; undefined: it has none.
  void give(const at::Tensor& weight, kernels::Fp8Matrix cast);

  // A matrix [rows, features], or of outputs; `of_columns`: transposed, with scales along what was its columns.
  kernels::Fp8Matrix cast(Fp8Role role, const at::Tensor& rows, bool of_columns);
  // Both from one cast where there is one scale.
  kernels::Fp8Matrix cast_weight(const at::Tensor& weight, bool of_columns);

 private:
  bool is_current(const at::Tensor& weight) const;
  void begin(const at::Tensor& weight);

  const Fp8Scheme scheme_;
  const std::shared_ptr<Fp8Overflows> overflows_;
  DelayedScale delayed_[kFp8Roles];
  bool keeps_casts_ = true;

  std::mutex mutex_;
  // The weight that has been cast, its memory and version.
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::optional<WeakTensor> weight_;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory_;
  int64_t version_ = 0;
  kernels::Fp8Matrix by_rows_, by_columns_;
};

}  // namespace accel::nn
