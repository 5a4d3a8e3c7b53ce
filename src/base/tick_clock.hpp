// SPDX-License-Identifier: Apache-2.0
// The clock of everything that is measured within a step: reading it takes a few nanoseconds.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace accel {

// Runs at the same rate on all cores; the rate is measured, see TickClock.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Nanoseconds since 1970.
inline int64_t unix_nanoseconds() {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Converts ticks to nanoseconds since 1970, by the two moments at which it was made and at which it is asked.
class TickClock {
 public:
  TickClock() : first_(Moment::now()) {}

  class Converter {
   public:
    int64_t operator()(uint64_t tick) const {
      const auto since = static_cast<double>(static_cast<int64_t>(tick - tick_));
      return nanoseconds_ + static_cast<int64_t>(since * nanoseconds_a_tick_);
    }

   private:
    friend class TickClock;
    uint64_t tick_ = 0;
    int64_t nanoseconds_ = 0;
    double nanoseconds_a_tick_ = 0;
  };

  Converter converter() const {
    const Moment last = Moment::now();
    Converter made;
    made.tick_ = first_.tick;
    made.nanoseconds_ = first_.nanoseconds;
    if (last.tick != first_.tick)
      made.nanoseconds_a_tick_ =
          static_cast<double>(last.nanoseconds - first_.nanoseconds) / static_cast<double>(last.tick - first_.tick);
    return made;
  }

 private:
  struct Moment {
    uint64_t tick = 0;
    int64_t nanoseconds = 0;

    // Takes the fastest of a few tries, during which the thread was not interrupted.
    static Moment now() {
      Moment best;
      uint64_t shortest = ~uint64_t{0};
      for (int i = 0; i < 5; i++) {
        const uint64_t before = ticks();
        const int64_t time = unix_nanoseconds();
        const uint64_t took = ticks() - before;
        if (took >= shortest) continue;
        shortest = took;
        best = {before + took / 2, time};
      }
      return best;
    }
  };

  Moment first_;
};

}  // namespace accel
