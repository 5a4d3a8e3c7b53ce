// SPDX-License-Identifier: Apache-2.0
// The request to stop that a launcher has got by signals. A second one asks for haste.
#pragma once

#include <csignal>
#include <optional>

#include "base/deadline.hpp"

namespace accel::launch {

class StopRequest {
 public:
  enum class Kind { kRepeated, kFirst, kHaste };

  Kind take(int signal) {
    if (!signal_) {
      signal_ = signal;
      one_signal_.emplace(kOneSignal);
      return Kind::kFirst;
    }
    return signal != SIGINT && !one_signal_->passed() ? Kind::kRepeated : Kind::kHaste;
  }
  // The first signal.
  const std::optional<int>& signal() const { return signal_; }

 private:
  // A batch system signals all processes of a job, and its own launcher forwards to this one what it gets.
  static constexpr Deadline::Milliseconds kOneSignal{1000};

  std::optional<int> signal_;
  std::optional<Deadline> one_signal_;  // until then another signal is the same
};

}  // namespace accel::launch
