// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/signal_source.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace accel::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

SignalSource::SignalSource() {
  // An ignored SIGCHLD, which may be inherited, would hide how the ranks end.
  signal(SIGCHLD, SIG_DFL);
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2}) {
    if (!is_ignored(signal)) sigaddset(&taken, signal);
  }
  sigset_t blocked = taken;
  sigaddset(&blocked, SIGPIPE);  // a closed stderr must not end the launcher before the ranks have ended
  pthread_sigmask(SIG_BLOCK, &blocked, &original_mask_);
  descriptor_ = FileDescriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  require(descriptor_.is_open(), Status::kIo, "signals cannot be received: ", std::strerror(errno));
}

std::optional<int> SignalSource::next() {
  signalfd_siginfo info;
  if (read(descriptor_.number(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace accel::launch
