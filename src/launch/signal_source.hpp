// The launcher's signals as something to poll.
#pragma once

#include <csignal>
#include <optional>

#include "base/file_descriptor.hpp"

namespace accel::launch {

class SignalSource {
 public:
  // From now on SIGCHLD and the signals that would end or stop the launcher wait here. Those that its starter ignores
  // (nohup, a shell's background job) stay ignored.
  SignalSource();

  int descriptor() const { return descriptor_.number(); }
  std::optional<int> next();

  // As it was before, for the programs to start with.
  const sigset_t& original_mask() const { return original_mask_; }

 private:
  FileDescriptor descriptor_;
  sigset_t original_mask_;
};

}  // namespace accel::launch
