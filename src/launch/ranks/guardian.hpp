// SPDX-License-Identifier: Apache-2.0
// Guardian: a small process that ends the ranks and their children if the launcher dies without doing so, for example
// by SIGKILL.
#pragma once

#include <sys/types.h>

#include <string>

#include "os/file_descriptor.hpp"

namespace accel::launch {

class Guardian {
 public:
  // Must be created before the first rank: the launcher may be killed at any time.
  Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Dismisses it: the process groups are left alone.
  ~Guardian();

  // Registers the calling process's group with the guardian. Each rank does so before it runs its program.
  void protect_own_group() const;

  // Ranks get it in kMarkVariable, so that those of their children that leave the group are found, too.
  const std::string& mark() const { return mark_; }

  // A copy of the launcher must close it.
  int descriptor() const { return groups_.number(); }

 private:
  const std::string mark_;
  FileDescriptor groups_;  // the guardian sees it closed when the launcher ends, however it ends
  pid_t process_ = 0;
};

}  // namespace accel::launch
