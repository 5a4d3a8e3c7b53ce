// SPDX-License-Identifier: Apache-2.0
// Stateful: an object whose state can be saved and loaded as a tree of values.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace accel::tensor {

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual c10::IValue state_dict() const = 0;
  // Loads the whole state, or throws without changing anything.
  virtual void load_state_dict(const c10::IValue& state) = 0;
  // Whether tensors of the state may be chunks, and of a loaded one tensor::SavedTensor; see tensor_chunk.hpp.
  virtual bool takes_chunks() const { return false; }
  // Throws what load_state_dict() would throw of the chunks that this rank needs, before any object changes.
  virtual void check_chunks(const c10::IValue& /*state*/) const {}

  // For per-rank states, if the number of ranks has changed: `states` are those of the saving ranks. By default loads
  // the first.
  virtual void load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
    load_state_dict(states.front());
  }
  // Throws if that is impossible, before any object changes.
  virtual void check_states_of_ranks(const std::vector<c10::IValue>& /*states*/) const {}
};

}  // namespace accel::tensor
