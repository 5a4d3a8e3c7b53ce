// SPDX-License-Identifier: Apache-2.0
// Placements of the parameters of a module, or of several, by the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensor/placement.hpp"

namespace accel::nn {

// Parameters are known by their identity; a caller keeps them alive.
class Placements {
 public:
  void set(const at::Tensor& parameter, tensor::PlacementPtr placement) {
    placements_[parameter.unsafeGetTensorImpl()] = std::move(placement);
  }
  // Null for a parameter that this rank stores as a whole.
  tensor::PlacementPtr find(const at::Tensor& parameter) const {
    const auto found = placements_.find(parameter.unsafeGetTensorImpl());
    return found == placements_.end() ? nullptr : found->second;
  }
  void add(const Placements& others) { placements_.insert(others.placements_.begin(), others.placements_.end()); }
  bool empty() const { return placements_.empty(); }
  // Whether ranks along this axis of the mesh store different parts of any parameter.
  bool have_axis(const std::string& axis) const {
    return std::any_of(placements_.begin(), placements_.end(),
                       [&](const auto& entry) { return tensor::has_any_axis(entry.second->axes, axis); });
  }

 private:
  std::unordered_map<const at::TensorImpl*, tensor::PlacementPtr> placements_;
};

}  // namespace accel::nn
