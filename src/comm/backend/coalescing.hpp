// Interface of a backend that can forget what it coalesces. Header only, because backends are plugins.
#pragma once

namespace accel::comm {

class Coalescing {
 public:
  virtual ~Coalescing() = default;

  // In place of endCoalescing(): nothing of the call is sent. For a call of which the rest cannot be made: to the other
  // ranks a part of it would be a mismatch.
  virtual void cancel_coalescing() noexcept = 0;
};

}  // namespace accel::comm
