// SPDX-License-Identifier: Apache-2.0
// Activation casts: the latest casts of activations to half precision under autocast. Products that read the same
// activation, such as those for attention's query, key and value, share its cast; each has its own in the graph, so
// that gradients are added as without sharing.
//
// Nothing is held alive: a cast is shared while a graph holds it for a backward, and is made again otherwise. Changes
// are seen by the versions of activation and cast, as autograd sees them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accel::precision {

// Used by one thread.
class ActivationCasts {
 public:
  // A tensor of its own with the memory of the cast, if that is there and neither has changed. Otherwise undefined.
  at::Tensor find(const at::Tensor& activation, c10::ScalarType dtype) const;
  void remember(const at::Tensor& activation, const at::Tensor& values);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Cast {
    WeakTensor activation, values;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // of the activation
    int64_t version, values_version;

    bool is_of(const at::Tensor& now, const at::Tensor& held) const;
  };

  std::vector<Cast> casts_;  // the latest ones, in any order
  size_t oldest_ = 0;
};

}  // namespace accel::precision
