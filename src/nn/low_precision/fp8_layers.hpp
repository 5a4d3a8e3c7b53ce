// SPDX-License-Identifier: Apache-2.0
// Fp8 layers: the linear layers of a model that a recipe covers. In a scope of them products with their weights are
// computed in 8 bits wherever autocast would cast them: at::linear(), at::matmul(), at::mm() and at::addmm() of any
// program, and the layers of this library.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/low_precision/fp8_histories.hpp"
#include "nn/low_precision/fp8_layer.hpp"
#include "nn/low_precision/fp8_selection.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::nn {

// The dispatch key on which they ask: above autocast, without other users, and included by a thread while it has a
// scope.
inline constexpr c10::DispatchKey kFp8Route = c10::DispatchKey::DeferredInit;

class Fp8Layers {
 public:
  // For make_fp8_layers(), which lets the operators of LibTorch ask the scope of their thread.
  Fp8Layers(const precision::Fp8Recipe& recipe, Fp8Selection selection, c10::Device device);

  // Bound to its thread, with those outside of it; null: without more.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<Fp8Layers> layers);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Fp8Layers;
    const std::shared_ptr<Fp8Layers> layers_;
    const Scope* const outer_;
    const bool was_included_;
  };
  // Returns those of the innermost scope; null if this thread has none.
  static std::shared_ptr<Fp8Layers> current();
  // The layers of the innermost scope that has any, if they compress activations and autocast is on; otherwise null.
  static std::shared_ptr<Fp8Layers> compressing(c10::DeviceType device);
  // The layer of a weight in the scopes of this thread, if autocast would cast a product of the two; otherwise null.
  static std::shared_ptr<Fp8Layer> of(const at::Tensor& input, const at::Tensor& weight);

  const precision::Fp8Recipe& recipe() const { return recipe_; }
  const Fp8Selection& selection() const { return selection_; }
  Fp8Histories* histories() { return histories_ ? &*histories_ : nullptr; }  // null unless scaling is delayed
  int64_t overflows() const { return overflows_->total(); }
  const std::shared_ptr<Fp8Overflows>& overflow_count() const { return overflows_; }  // for others that cast weights

  // Whether the weights keep their memory from one product to the next; else they are cast for each one.
  void keep_casts(bool keeps);
  void start_accumulation_window();
  // The cast of a covered weight by its rows, for its present values, which somebody else has made; undefined: none.
  void give(const at::Tensor& weight, const kernels::Fp8Matrix& cast);

 private:
  struct Covered {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;  // so that its address stays its own
    std::shared_ptr<Fp8Layer> layer;
  };

  std::shared_ptr<Fp8Layer> find(const at::Tensor& weight) const;

  const precision::Fp8Recipe recipe_;
  const Fp8Selection selection_;
  const std::shared_ptr<Fp8Overflows> overflows_ = std::make_shared<Fp8Overflows>();
  std::unordered_map<const c10::TensorImpl*, Covered> layers_;
  std::optional<Fp8Histories> histories_;
};

}  // namespace accel::nn
