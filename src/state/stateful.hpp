// What can be saved and taken back as a tree of values.
#pragma once

#include <ATen/core/ivalue.h>

namespace accel::state {

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual c10::IValue state_dict() const = 0;
  // Either takes the whole state or throws and keeps the one it had.
  virtual void load_state_dict(const c10::IValue& state) = 0;
};

}  // namespace accel::state
