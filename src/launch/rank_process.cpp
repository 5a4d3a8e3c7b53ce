#include "launch/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

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
bool needs_empty_input(const RankCommand& command) { return !command.is_first || isatty(STDIN_FILENO) != 0; }

// What the new process does; returns only when the program cannot be executed.
void become_rank(const RankCommand& command, const Guardian& guardian, char* const* arguments, char* const* environment,
                 int output, pid_t launcher) {
  setpgid(0, 0);
  guardian.protect_own_group();
  // The launcher may be killed at any time; had it been before the request was in force, nobody would tell us.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  if (needs_empty_input(command)) {
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (empty < 0 || dup2(empty, STDIN_FILENO) < 0) return;
  }
  if (output >= 0 && (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)) return;
  pthread_sigmask(SIG_SETMASK, &command.signal_mask, nullptr);
  execvpe(arguments[0], arguments, environment);
}

}  // namespace

RankProcess::RankProcess(const RankCommand& command, const Guardian& guardian, const Pipe& failures) {
  const std::vector<char*> arguments = pointers_to(command.program);
  const std::vector<char*> environment = pointers_to(command.environment);
  Pipe output;
  if (!command.is_first) {
    output = make_pipe();
    fcntl(output.read_end.number(), F_SETFL, O_NONBLOCK);
  }
  const pid_t launcher = getpid();
  const pid_t forked = fork();
  require(forked >= 0, Status::kIo, "no process can be started: ", std::strerror(errno));
  if (forked == 0) {
    become_rank(command, guardian, arguments.data(), environment.data(), output.write_end.number(), launcher);
    const int reason = errno;
    const ssize_t written = write(failures.write_end.number(), &reason, sizeof(reason));
    _exit(written == sizeof(reason) ? 127 : 126);
  }
  process_.number = forked;
  output_ = std::move(output.read_end);
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
  if (waitid(P_PID, static_cast<id_t>(process_.number), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return;
  }
  end_ = process_end(info);
  read_output();
  send(SIGKILL);
  waitpid(process_.number, nullptr, 0);
}

void RankProcess::read_output() {
  if (output_.is_open() && !tail_.read_from(output_.number())) output_.reset();
}

}  // namespace accel::launch
