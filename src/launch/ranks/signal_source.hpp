// SPDX-License-Identifier: Apache-2.0
// Signal source: the launcher's signals as a file descriptor to poll.
#pragma once

#include <csignal>
#include <optional>

#include "os/file_descriptor.hpp"

namespace accel::launch {

class SignalSource {
 public:
  // Blocks SIGCHLD and the signals that would end or stop the launcher, and queues them here. Signals that the launcher
  // inherits as ignored (nohup, background jobs of a shell) stay ignored.
  SignalSource();

  int descriptor() const { return descriptor_.number(); }
  std::optional<int> next();

  // The former signal mask, for the programs that are started.
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  FileDescriptor descriptor_;
  sigset_t original_mask_;
};

}  // namespace accel::launch
