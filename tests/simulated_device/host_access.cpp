// SPDX-License-Identifier: Apache-2.0
#include "host_access.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "memory.hpp"

namespace simulated_device {
namespace {

struct sigaction handler_before;

void report(int signal, siginfo_t* info, void* context) {
  if (is_device_address(info->si_addr)) {
    char line[160];
    const int length = std::snprintf(
        line, sizeof line, "the host touched memory of simulated device %d at %p: copy it to the host first\n",
        device_of_address(info->si_addr), info->si_addr);
    if (write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) _exit(1);
  }
  if (handler_before.sa_flags & SA_SIGINFO) {
    handler_before.sa_sigaction(signal, info, context);
  } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(signal);
  } else {
    sigaction(signal, &handler_before, nullptr);  // the access happens again, and ends the process
  }
}

}  // namespace

void report_host_access() {
  struct sigaction handler {};
  handler.sa_sigaction = report;
  handler.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &handler, &handler_before);
}

}  // namespace simulated_device
