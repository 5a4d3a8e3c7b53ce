// SPDX-License-Identifier: Apache-2.0
#include "logging/process_memory.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "os/file_descriptor.hpp"

namespace accel::track {

ProcessMemory process_memory() {
  ProcessMemory memory;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) memory.most_resident = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  const FileDescriptor pages(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = "";
  long long whole = 0, resident = 0;
  if (pages.is_open() && read(pages.number(), text, sizeof text - 1) > 0 &&
      std::sscanf(text, "%lld %lld", &whole, &resident) == 2)
    memory.resident = resident * sysconf(_SC_PAGESIZE);
  memory.most_resident = std::max(memory.most_resident, memory.resident);  // the kernel updates the peak late
  return memory;
}

}  // namespace accel::track
