// SPDX-License-Identifier: Apache-2.0
// Autocast weight cache: keeps the half-precision casts of a model's weights from one forward to the next. A forward
// under autocast reuses the cast of an unchanged weight, and an optimizer can write the cast in the pass that updates
// the weight.
//
// A cast is valid while the weight has the same memory and version: LibTorch and this library increment a tensor's
// version with each change. Writes of the application by address (tensor/external_alias.hpp) do not, so casts of such
// weights are cached within one accumulation window only.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <unordered_map>
#include <vector>

#include "precision/activation_casts.hpp"

namespace accel::precision {

class AutocastWeightCache {
 public:
  // Caches casts of weights on devices of this type.
  explicit AutocastWeightCache(c10::DeviceType device);
  ~AutocastWeightCache();
  AutocastWeightCache(const AutocastWeightCache&) = delete;
  AutocastWeightCache& operator=(const AutocastWeightCache&) = delete;

  // During its lifetime the autocast regions of this thread use `casts`, or no cache if that is null. Those that use
  // one share casts of activations too.
  class Scope {
   public:
    explicit Scope(AutocastWeightCache* casts);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    ActivationCasts& activations() { return activations_; }

   private:
    friend class AutocastWeightCache;
    AutocastWeightCache* casts_;
    Scope* former_;
    ActivationCasts activations_;
  };

  // The cache that this thread uses, or null.
  static AutocastWeightCache* current();
  // Whether a cache of this address has not been destroyed.
  static bool exists(const AutocastWeightCache* casts);

  // Starts an accumulation window: casts that may be outdated are written anew when they are needed, those of deleted
  // weights are dropped.
  void start_accumulation_window();
  // The number of valid casts.
  size_t size();

  // The cast of `weight`, which is created if there is none. Each caller gets its own tensor, with shared memory. On a
  // device the first call for a weight that has changed writes the casts of all that have, in one launch.
  at::Tensor cast(const at::Tensor& weight, c10::ScalarType dtype);

  // For CastUpdate, which puts it back. Undefined if there is none, or if it is also used elsewhere.
  at::Tensor take(const at::Tensor& weight);
  void put_back(const at::Tensor& weight, at::Tensor values);

 private:
  struct Cast {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // of the weight
    int64_t version;                                   // of the weight
    bool may_differ;                                   // not written yet, or the weight may have been, by address
    at::Tensor values;                                 // undefined while an optimizer writes it

    bool is_of(const at::Tensor& now) const;
    // Whether the values have the dtype, and the layout and device of the weight.
    bool fits(const at::Tensor& now, c10::ScalarType dtype) const;
  };
  struct Written {
    Cast* cast;
    at::Tensor weight;
  };

  // All casts to the dtype that differ from their weights on the device.
  std::vector<Written> outdated(c10::Device device, c10::ScalarType dtype);
  // In their memory, unless that is also used elsewhere, such as by a graph for a later backward.
  static void write(const std::vector<Written>& casts, c10::ScalarType dtype);

  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Cast> casts_;
};

// The update of a weight's cast by an optimizer: taken before the weight changes, and put back for its new version. A
// cast that is also used elsewhere, such as by a graph for a later backward, is not written.
class CastUpdate {
 public:
  explicit CastUpdate(const at::Tensor& weight);
  // In the layout of the weight; undefined if there is none to write.
  const at::Tensor& values() const { return values_; }
  // Called after both are written and the weight's version is incremented.
  void keep(const at::Tensor& weight);

 private:
  AutocastWeightCache* casts_ = nullptr;  // may be gone when the values are put back
  at::Tensor values_;
};

}  // namespace accel::precision
