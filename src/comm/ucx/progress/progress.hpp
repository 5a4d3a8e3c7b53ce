// The progress loop: a template, so that the check for the end of a short collective is inlined.
#pragma once

#include <utility>

#include "comm/ucx/progress/progress_engine.hpp"

namespace accel::comm::ucx {

// Spins for a moment if every rank has a core and that has brought something, then sleeps until something arrives.
template <typename Done>
void ProgressEngine::progress_until(const Done& done, Session* session) {
  using Clock = std::chrono::steady_clock;
  constexpr unsigned kRoundsBetweenChecks = 4096;
  Clock::time_point spin_end{};
  bool spinning = false;
  for (unsigned rounds = 1;; rounds++) {
    const bool progressed = progress();
    if (session != nullptr) session->throw_if_failed();
    if (done()) {
      if (spinning) spin_.ended_early();
      return;
    }
    if (progressed) {
      // Messages that keep arriving must not delay the detection of a lost rank.
      if (rounds % kRoundsBetweenChecks == 0) {
        wait_for_events(0);
        check(session);
      }
      refusals_ = 0;
      if (std::exchange(spinning, false)) spin_.ended_early();
      continue;
    }
    if (const auto spin = spin_.length(); spin.count() > 0) {
      const auto now = Clock::now();
      if (!spinning) spin_end = now + spin;
      spinning = true;
      if (now < spin_end) continue;
    }
    spin_.slept();
    sleep(session);
    spinning = false;
  }
}

template <typename Enough>
void ProgressEngine::progress_until_idle(const Enough& enough) {
  attention_.store(true);
  progress_until([&] { return enough() || (!busy_ && !attention_.load()); }, nullptr);
}

}  // namespace accel::comm::ucx
