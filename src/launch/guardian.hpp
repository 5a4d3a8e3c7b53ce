// A small process that ends the ranks, and what they have started, when the launcher dies without having done it:
// killed by SIGKILL, nobody else could.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launch/file_descriptor.hpp"

namespace accel::launch {

class Guardian {
 public:
  explicit Guardian(const std::vector<pid_t>& process_groups);
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Dismisses it: the process groups are left alone.
  ~Guardian();

 private:
  FileDescriptor launcher_lives_;  // the guardian sees it closed when the launcher ends, however it ends
  pid_t process_ = 0;
};

}  // namespace accel::launch
