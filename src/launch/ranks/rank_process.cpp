// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel::launch {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& one : texts) pointers.push_back(const_cast<char*>(one.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// A process outside the terminal's foreground group that reads from the terminal would be stopped.
bool needs_empty_input(const RankCommand& command) { return !command.is_main || isatty(STDIN_FILENO) != 0; }

RankOutputPlan output_plan(const RankCommand& command) {
  RankOutputPlan plan;
  plan.is_inherited = command.is_main && command.log_file.empty() && command.shown == nullptr;
  plan.log_file = command.log_file;
  plan.log_header = command.log_header;
  plan.shown = command.shown;
  plan.shows_stdout = command.shows_stdout;
  plan.shows_stderr = command.shows_stderr;
  plan.prefix = command.prefix;
  return plan;
}

bool writes_to(const RankOutput& output) {
  return (output.child_stdout() < 0 || dup2(output.child_stdout(), STDOUT_FILENO) >= 0) &&
         (output.child_stderr() < 0 || dup2(output.child_stderr(), STDERR_FILENO) >= 0);
}

[[noreturn]] void run_function(const RankCommand& command, const Guardian& guardian, const Pipe& failures) {
  for (const int descriptor : command.not_inherited) close(descriptor);
  for (const int descriptor : {guardian.descriptor(), failures.read_end.number(), failures.write_end.number()})
    close(descriptor);
  replace_environment(command.environment);
  _exit(command.function());  // exit handlers are the parent's
}

// Runs in the new process; returns only when the program cannot be executed.
void become_rank(const RankCommand& command, const Guardian& guardian, const Pipe& failures, char* const* arguments,
                 char* const* environment, const RankOutput& output, pid_t launcher) {
  // Also a process group, which is ended as one. Where the kernel shares the processors among sessions first and then
  // within them, as Linux does by default, a rank in the launcher's would share one part with all that the user runs
  // there.
  setsid();
  guardian.protect_own_group();
  // The launcher may be killed at any time; had it been before the request was in force, nobody would tell us.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  if (needs_empty_input(command)) {
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (empty < 0 || dup2(empty, STDIN_FILENO) < 0) return;
  }
  if (!writes_to(output)) return;
  pthread_sigmask(SIG_SETMASK, &command.signal_mask, nullptr);
  if (command.function) run_function(command, guardian, failures);
  for (const int descriptor : command.inherited) fcntl(descriptor, F_SETFD, 0);
  execvpe(command.file.empty() ? arguments[0] : command.file.c_str(), arguments, environment);
}

}  // namespace

RankProcess::RankProcess(const RankCommand& command, const Guardian& guardian, const Pipe& failures)
    : output_(output_plan(command)) {
  const std::vector<char*> arguments = pointers_to(command.program);
  const std::vector<char*> environment = pointers_to(command.environment);
  const pid_t launcher = getpid();
  const pid_t forked = fork();
  require(forked >= 0, Status::kIo, "no process can be started: ", std::strerror(errno));
  if (forked == 0) {
    become_rank(command, guardian, failures, arguments.data(), environment.data(), output_, launcher);
    const int reason = errno;
    const ssize_t written = write(failures.write_end.number(), &reason, sizeof(reason));
    _exit(written == sizeof(reason) ? 127 : 126);
  }
  process_.number = forked;
  output_.close_child_ends();
}

RankProcess::~RankProcess() {
  if (!is_running()) return;
  // Before its group exists the process is alone.
  kill(process_.number, SIGKILL);
  send(SIGKILL);
  waitpid(process_.number, nullptr, 0);
}

void RankProcess::send(int signal) const { kill(-process_.number, signal); }

void RankProcess::collect() {
  siginfo_t info = {};
  // WNOWAIT: as long as nobody has waited for it, its number means this process group and no other.
  const int failure =
      waitid(P_PID, static_cast<id_t>(process_.number), &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? 0 : errno;
  if (failure == EINTR || (failure == 0 && info.si_pid == 0)) return;
  // A program that starts ranks itself may have another part that waits for all of its children: how it ended is lost.
  if (failure != 0) {
    end_ = {false, 1};
    return;
  }
  end_ = process_end(info);
  read_output();
  send(SIGKILL);
  rusage usage = {};
  if (wait4(process_.number, nullptr, 0, &usage) == process_.number)
    end_->peak_memory = usage.ru_maxrss * int64_t{1024};
}

}  // namespace accel::launch
