// SPDX-License-Identifier: Apache-2.0
// Trigger: a flag that any rank may set and all ranks check together, as set_trigger() of Accelerate's Accelerator.
#pragma once

#include "comm/communicator.hpp"

namespace accel::state {

class Trigger {
 public:
  void set() { is_set_ = true; }
  // Collective: whether any rank has set it. If so, it is reset.
  bool check(comm::Communicator& ranks) {
    const bool is_set_anywhere = ranks.any_rank(is_set_);
    if (is_set_anywhere) is_set_ = false;
    return is_set_anywhere;
  }

 private:
  bool is_set_ = false;
};

}  // namespace accel::state
