// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: the largest magnitudes of operands in former steps, and the scales that come from them (Micikevicius
// et al., "FP8 Formats for Deep Learning", 2022).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "nn/low_precision/fp8_layer.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::nn {

class Fp8Histories {
 public:
  // The operands are those of layers with these names, on their device.
  Fp8Histories(const precision::Fp8Recipe& recipe, const Fp8Scheme& scheme, std::vector<std::string> layers,
               c10::Device device);

  DelayedScale of(size_t layer, Fp8Role role) const;

  // The largest magnitudes that this rank has seen since the last update, [layers, roles]; finite.
  const at::Tensor& magnitudes() const { return magnitudes_; }
  // Ends a step, of which these are the largest magnitudes on all ranks. On a device the host waits for nothing.
  void update(const at::Tensor& magnitudes);

  // With a map from the layers' names to their histories, [steps, roles], and scales. Those of several ranks are loaded
  // by name: a rank may have had other layers, and layers that none of them has begin anew.
  c10::IValue state_dict() const;
  void load_states(const std::vector<c10::IValue>& states);

 private:
  const precision::Fp8Recipe recipe_;
  const std::vector<std::string> layers_;
  const at::Tensor largest_;  // of the formats of the roles
  at::Tensor history_;        // [steps, layers, roles], the latest first
  at::Tensor magnitudes_, scales_;
  at::Tensor steps_;  // [1]
};

}  // namespace accel::nn
