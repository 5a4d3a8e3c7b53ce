#include "launch/host_agent.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

#include "launch/rank_environment.hpp"

namespace accel::launch {
namespace {

// Told to stop, a program may want to write a checkpoint. A second signal ends the wait.
constexpr Deadline::Milliseconds kGraceAfterSignal(10000);

}  // namespace

HostAgent::HostAgent(const LaunchOptions& options) : options_(options) {}

void HostAgent::start_job() {
  JobPlace place;
  place.local_processes = options_.local_processes();
  place.first_rank = options_.machine_rank * place.local_processes;
  place.world_size = options_.num_processes;
  place.host_number = options_.machine_rank;
  place.num_hosts = options_.num_machines;
  place.master_port = options_.main_process_port ? *options_.main_process_port : free_port();
  if (place.num_hosts == 1) place.token = job_token();
  job_.emplace(options_, place, guardian_, signals_.original_mask());
}

int HostAgent::run() {
  start_job();
  while (job_->is_running()) {
    wait_for_event();
    handle_signals();
    job_->kill_late();
  }
  return finish();
}

int HostAgent::finish() {
  if (stop_signal_) {
    std::fprintf(stderr, "accel launch: stopped by %s\n", signal_name(*stop_signal_).c_str());
    return job_->exit_status() == kRequeueStatus ? kRequeueStatus : 128 + *stop_signal_;
  }
  if (job_->first_failure()) job_->report_failure();
  return job_->exit_status();
}

void HostAgent::wait_for_event() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
  job_->add_outputs(polled);
  // One more millisecond: what is left is rounded down.
  const int timeout = job_->grace() ? static_cast<int>(job_->grace()->left().count()) + 1 : -1;
  if (poll(polled.data(), polled.size(), timeout) > 0) job_->read_outputs(polled.data() + 1);
}

void HostAgent::handle_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      job_->collect_ended();
    } else if (*signal == SIGTSTP) {
      pause();
    } else if (*signal == SIGUSR1 || *signal == SIGUSR2) {
      job_->send(*signal);
    } else {
      stop(*signal);
    }
  }
}

void HostAgent::stop(int signal) {
  if (stop_signal_) {
    job_->send(SIGKILL);
    return;
  }
  stop_signal_ = signal;
  job_->end(signal, kGraceAfterSignal);
}

void HostAgent::pause() {
  job_->send(SIGSTOP);
  raise(SIGSTOP);
  job_->send(SIGCONT);
}

}  // namespace accel::launch
