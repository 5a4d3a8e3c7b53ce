#include "launch/guardian.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace accel::launch {
namespace {

[[noreturn]] void stand_guard(const std::vector<pid_t>& process_groups, int launcher_lives) {
  setsid();  // what is sent to the launcher's group, or to the terminal's, is not for the guardian
  sigset_t every_signal;
  sigfillset(&every_signal);
  pthread_sigmask(SIG_SETMASK, &every_signal, nullptr);
  prctl(PR_SET_NAME, "accel-guardian");
  // It must hold none of the launcher's files open: not its own end of the pipe, not the output that somebody waits
  // for.
  dup2(launcher_lives, STDIN_FILENO);
  close_range(STDIN_FILENO + 1, UINT_MAX, 0);
  char nothing;
  while (read(STDIN_FILENO, &nothing, 1) < 0 && errno == EINTR) {
  }
  for (const pid_t group : process_groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guardian::Guardian(const std::vector<pid_t>& process_groups) {
  Pipe pipe = make_pipe();
  process_ = fork();
  require(process_ >= 0, Status::kIo, "no process can be started: ", std::strerror(errno));
  if (process_ == 0) stand_guard(process_groups, pipe.read_end.number());
  launcher_lives_ = std::move(pipe.write_end);
}

Guardian::~Guardian() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

}  // namespace accel::launch
