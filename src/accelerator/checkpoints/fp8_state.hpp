// SPDX-License-Identifier: Apache-2.0
// The state of recipes of fp8: which they are, and the histories of delayed scaling.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "accelerator/prepared_objects.hpp"
#include "tensor/stateful.hpp"

namespace accel::nn {
class Fp8Layers;
}

namespace accel::accelerator {

class Fp8State final : public tensor::Stateful {
 public:
  explicit Fp8State(const std::vector<ModelEntry>& models);
  // Whether no model computes in 8 bits.
  bool empty() const;

  c10::IValue state_dict() const override;
  // INVALID_ARGUMENT for the state of another recipe.
  void load_state_dict(const c10::IValue& state) override;
  // The layers of all ranks, of which this one may have others than before.
  void load_states_of_ranks(const std::vector<c10::IValue>& states, int rank) override;
  void check_states_of_ranks(const std::vector<c10::IValue>& states) const override;

 private:
  std::vector<std::shared_ptr<nn::Fp8Layers>> models_;  // null for those that do not
};

}  // namespace accel::accelerator
