// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/process_end.hpp"

#include "base/error.hpp"

namespace accel::launch {
namespace {

struct SignalMeaning {
  int signal;
  const char* name;
  const char* meaning;
};

constexpr SignalMeaning kSignalMeanings[] = {
    {SIGABRT, "SIGABRT", "aborted, by a failed assertion or an uncaught exception"},
    {SIGALRM, "SIGALRM", "a timer of the program ran out"},
    {SIGBUS, "SIGBUS", "memory that is not there, often a full /dev/shm or a file cut short while it was mapped"},
    {SIGFPE, "SIGFPE", "an arithmetic error, often an integer division by zero"},
    {SIGHUP, "SIGHUP", "the terminal was closed"},
    {SIGILL, "SIGILL", "an instruction that this processor does not have"},
    {SIGINT, "SIGINT", "interrupted from the keyboard"},
    {SIGKILL, "SIGKILL", "killed, often by the out-of-memory killer"},
    {SIGPIPE, "SIGPIPE", "wrote to a pipe or socket that nobody reads"},
    {SIGQUIT, "SIGQUIT", "quit from the keyboard"},
    {SIGSEGV, "SIGSEGV", "access to memory that is not the program's"},
    {SIGSYS, "SIGSYS", "a system call that is forbidden here"},
    {SIGTERM, "SIGTERM", "asked to end, by a batch system or a user"},
    {SIGTRAP, "SIGTRAP", "a breakpoint or a failed check of the compiler"},
    {SIGUSR1, "SIGUSR1", "sent by a program or a batch system"},
    {SIGUSR2, "SIGUSR2", "sent by a program or a batch system"},
    {SIGXCPU, "SIGXCPU", "the limit of processor time was reached"},
    {SIGXFSZ, "SIGXFSZ", "the limit of file size was reached"},
};

const SignalMeaning* find_meaning(int signal) {
  for (const SignalMeaning& meaning : kSignalMeanings) {
    if (meaning.signal == signal) return &meaning;
  }
  return nullptr;
}

}  // namespace

ProcessEnd process_end(const siginfo_t& info) {
  ProcessEnd end;
  end.by_signal = info.si_code != CLD_EXITED;
  end.number = info.si_status;
  return end;
}

std::string signal_name(int signal) {
  const SignalMeaning* const meaning = find_meaning(signal);
  return meaning != nullptr ? meaning->name : text("signal ", signal);
}

std::string describe(const ProcessEnd& end) {
  if (!end.by_signal) return text("exit status ", end.number);
  const SignalMeaning* const meaning = find_meaning(end.number);
  return meaning != nullptr ? text(meaning->name, ": ", meaning->meaning) : signal_name(end.number);
}

}  // namespace accel::launch
