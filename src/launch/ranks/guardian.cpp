// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/guardian.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "launch/ranks/pipe.hpp"
#include "launch/ranks/stray_processes.hpp"

namespace accel::launch {
namespace {

// The C library has a function only from 2.34 on, its headers may be older than the kernel, and the kernel has the call
// from 5.9 on.
void close_all_files_from(int first) {
  constexpr long kCloseRange = 436;  // the same on all processors
  if (syscall(kCloseRange, first, UINT_MAX, 0) == 0) return;
  for (int file = first; file < sysconf(_SC_OPEN_MAX); file++) close(file);
}

[[noreturn]] void stand_guard(int groups, const std::string& mark) {
  setsid();  // what is sent to the launcher's group, or to the terminal's, is not for the guardian
  sigset_t every_signal;
  sigfillset(&every_signal);
  pthread_sigmask(SIG_SETMASK, &every_signal, nullptr);
  prctl(PR_SET_NAME, "accel-guardian");
  // It must hold none of the launcher's files open: not its own end of the pipe, not the output that somebody waits
  // for.
  dup2(groups, STDIN_FILENO);
  close_all_files_from(STDIN_FILENO + 1);
  std::vector<pid_t> protected_groups;
  pid_t group = 0;
  while (read(STDIN_FILENO, &group, sizeof(group)) == sizeof(group)) protected_groups.push_back(group);
  for (const pid_t one : protected_groups) kill(-one, SIGKILL);
  kill_strays(mark);
  _exit(0);
}

}  // namespace

Guardian::Guardian() : mark_(new_mark()) {
  Pipe pipe = make_pipe();
  process_ = fork();
  require(process_ >= 0, Status::kIo, "no process can be started: ", std::strerror(errno));
  if (process_ == 0) stand_guard(pipe.read_end.number(), mark_);
  groups_ = std::move(pipe.write_end);
}

void Guardian::protect_own_group() const {
  const pid_t group = getpgrp();
  // Writes this small are whole. One that fails leaves the rank to the request that it be killed with its parent.
  while (write(groups_.number(), &group, sizeof(group)) < 0 && errno == EINTR) {
  }
}

Guardian::~Guardian() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

}  // namespace accel::launch
