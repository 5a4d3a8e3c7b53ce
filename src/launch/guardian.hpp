// A small process that ends the ranks, and what they have started, when the launcher dies without having done it:
// killed by SIGKILL, nobody else could.
#pragma once

#include <sys/types.h>

#include "base/file_descriptor.hpp"

namespace accel::launch {

class Guardian {
 public:
  // It must be there before the first rank: the launcher may be killed at any time.
  Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Dismisses it: the process groups are left alone.
  ~Guardian();

  // Puts the calling process's group in the guardian's care. Each rank does it before it runs its program.
  void protect_own_group() const;

 private:
  FileDescriptor groups_;  // the guardian sees it closed when the launcher ends, however it ends
  pid_t process_ = 0;
};

}  // namespace accel::launch
