// SPDX-License-Identifier: Apache-2.0
// A deadline that is counted from the first look at it, in a wait that is not over at once: to look at the clock takes
// 25 ns.
#pragma once

#include <chrono>
#include <optional>

#include "base/deadline.hpp"

namespace accel::comm::ucx {

class LateDeadline {
 public:
  explicit LateDeadline(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  const Deadline& get() const {
    if (!deadline_) deadline_.emplace(timeout_);
    return *deadline_;
  }

 private:
  const std::chrono::milliseconds timeout_;
  mutable std::optional<Deadline> deadline_;
};

}  // namespace accel::comm::ucx
