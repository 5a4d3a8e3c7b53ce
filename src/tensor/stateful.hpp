// What can be saved and taken back as a tree of values.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace accel::tensor {

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual c10::IValue state_dict() const = 0;
  // Either takes the whole state or throws and keeps the one it had.
  virtual void load_state_dict(const c10::IValue& state) = 0;

  // Of what each rank has its own, by another number of ranks than saved it: `states` are those of the ranks that did.
  // The first one's counts where an object knows no better.
  virtual void load_states_of_ranks(const std::vector<c10::IValue>& states, int /*rank*/) {
    load_state_dict(states.front());
  }
  // Throws for what that cannot take, before any object changes.
  virtual void check_states_of_ranks(const std::vector<c10::IValue>& /*states*/) const {}
};

}  // namespace accel::tensor
