#include "base/processors.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace accel {

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

int bind_to_share(int rank, int ranks) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 0;
  const int processors = CPU_COUNT(&usable);
  if (processors < ranks) return 0;
  const int first = rank * processors / ranks;
  const int end = (rank + 1) * processors / ranks;
  cpu_set_t share;
  CPU_ZERO(&share);
  int place = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &usable)) continue;
    if (place >= first && place < end) CPU_SET(processor, &share);
    ++place;
  }
  return sched_setaffinity(0, sizeof(share), &share) == 0 ? end - first : 0;
}

}  // namespace accel
