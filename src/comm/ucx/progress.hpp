// The wait of the driving thread, a template so that the check for the end of a short collective is inlined.
#pragma once

#include "comm/ucx/driver.hpp"

namespace accel::comm::ucx {

// Spins for a moment, where every rank has a core, then sleeps until something arrives.
template <typename Done>
void Driver::progress_until(const Done& done, Session* session) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point spin_end{};
  bool spinning = false;
  for (;;) {
    const bool progressed = transport_->progress();
    service();
    if (done()) return;
    if (progressed) {
      spinning = false;
      continue;
    }
    if (spin_.count() > 0) {
      const auto now = Clock::now();
      if (!spinning) spin_end = now + spin_;
      spinning = true;
      if (now < spin_end) continue;
    }
    sleep(session);
    spinning = false;
  }
}

}  // namespace accel::comm::ucx
