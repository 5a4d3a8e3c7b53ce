// SPDX-License-Identifier: Apache-2.0
// Interface of a backend that can forget what it coalesces: collectives. A message is a call of its own, with its own
// work, and is refused in a coalesced call. Header only, because backends are plugins.
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
