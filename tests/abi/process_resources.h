/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds of the system, and what would grow if something were not given back. */
#ifndef ACCEL_PROCESS_RESOURCES_H
#define ACCEL_PROCESS_RESOURCES_H

#include <dirent.h>
#include <time.h>

static inline int count_entries(const char* folder) {
  int count = 0;
  DIR* const entries = opendir(folder);
  if (entries == NULL) return -1;
  while (readdir(entries) != NULL) count++;
  closedir(entries);
  return count;
}

static inline int count_descriptors(void) { return count_entries("/proc/self/fd"); }
static inline int count_threads(void) { return count_entries("/proc/self/task"); }

/* The count, once it is not above `most`; threads that close connections may need a moment until then. */
static inline int settled(int (*count)(void), int most) {
  const struct timespec pause = {0, 10000000};
  int attempts = 500;
  while (count() > most && attempts-- > 0) nanosleep(&pause, NULL);
  return count();
}

#endif
