// SPDX-License-Identifier: Apache-2.0
// Weight store: has the values of a module's tensors while the module does not use them (offload).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace accel::nn {

class WeightStore {
 public:
  WeightStore() = default;
  virtual ~WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // The values of a parameter or buffer, not to be changed; the tensor itself if they are not in the store.
  virtual at::Tensor stored(const at::Tensor& tensor) const = 0;
  // Whether the model is on several devices, so that it is neither moved nor trained by several ranks.
  virtual bool is_spread() const = 0;
  // Modules compute with stored weights there.
  virtual c10::Device compute_device() const = 0;
};

// The values of a member of a module, wherever they are.
inline at::Tensor stored_values(const std::shared_ptr<WeightStore>& store, const at::Tensor& tensor) {
  return store == nullptr ? tensor : store->stored(tensor);
}

}  // namespace accel::nn
