#include "launch/job.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "launch/rank_environment.hpp"

namespace accel::launch {
namespace {

// After a failure the others have lost their peer: all are gone within two seconds.
constexpr Deadline::Milliseconds kGraceAfterFailure(1500);
// Told to stop, a program may want to write a checkpoint. A second signal ends the wait.
constexpr Deadline::Milliseconds kGraceAfterSignal(10000);
constexpr size_t kShownLines = 20;

}  // namespace

Job::Job(const LaunchOptions& options) : options_(options) { start(); }

void Job::start() {
  const int port = options_.main_process_port ? *options_.main_process_port : free_port();
  const std::string token = job_token();
  Pipe failures = make_pipe();
  ranks_.reserve(static_cast<size_t>(options_.local_processes()));
  for (int local_rank = 0; local_rank < options_.local_processes(); ++local_rank) {
    const RankCommand command = {options_.program, rank_environment(options_, local_rank, port, token), local_rank == 0,
                                 signals_.original_mask()};
    ranks_.emplace_back(command, guardian_, failures);
  }
  failures.write_end.reset();

  int reason = 0;
  if (read(failures.read_end.number(), &reason, sizeof(reason)) != sizeof(reason)) return;
  const std::string& program = options_.program.front();
  require(reason != ENOENT, Status::kNotFound, "'", program,
          "' was not found; expected the path of a program, or a name that is in PATH");
  fail(Status::kIo, "'", program, "' cannot be started: ", std::strerror(reason));
}

int Job::run() {
  while (is_running()) {
    wait_for_event();
    handle_signals();
    if (grace_ && grace_->passed()) {
      grace_.reset();
      send(SIGKILL);
    }
  }
  if (stop_signal_) {
    std::fprintf(stderr, "accel launch: stopped by %s\n", signal_name(*stop_signal_).c_str());
    return 128 + *stop_signal_;
  }
  if (!first_failure_) return 0;
  report_failure();
  return ranks_[*first_failure_].end()->exit_status();
}

bool Job::is_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_running(); });
}

void Job::send(int signal) {
  for (const RankProcess& rank : ranks_) {
    if (rank.is_running()) rank.send(signal);
  }
}

void Job::wait_for_event() {
  std::vector<pollfd> descriptors = {{signals_.descriptor(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) descriptors.push_back({rank.output(), POLLIN, 0});
  // One more millisecond: what is left is rounded down.
  const int timeout = grace_ ? static_cast<int>(grace_->left().count()) + 1 : -1;
  if (poll(descriptors.data(), descriptors.size(), timeout) <= 0) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (descriptors[i + 1].revents != 0) ranks_[i].read_output();
  }
}

void Job::handle_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      collect_ended();
    } else if (*signal == SIGTSTP) {
      pause();
    } else {
      stop(*signal);
    }
  }
}

void Job::collect_ended() {
  std::optional<size_t> failed;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].is_running()) continue;
    ranks_[i].collect();
    if (ranks_[i].is_running() || ranks_[i].end()->is_success()) continue;
    // Of several that ended at once, the one that was killed is the cause: the others may have missed their peer.
    if (!failed || (ranks_[i].end()->by_signal && !ranks_[*failed].end()->by_signal)) failed = i;
  }
  if (failed && !first_failure_ && !stop_signal_) end_others(*failed);
}

void Job::end_others(size_t failed) {
  first_failure_ = failed;
  send(SIGTERM);
  grace_.emplace(kGraceAfterFailure);
}

void Job::stop(int signal) {
  if (stop_signal_) {
    send(SIGKILL);
    return;
  }
  stop_signal_ = signal;
  send(signal);
  if (!grace_) grace_.emplace(kGraceAfterSignal);
}

void Job::pause() {
  send(SIGSTOP);
  raise(SIGSTOP);
  send(SIGCONT);
}

int Job::global_rank(size_t local_rank) const {
  return options_.machine_rank * options_.local_processes() + static_cast<int>(local_rank);
}

void Job::report_failure() const {
  const RankProcess& rank = ranks_[*first_failure_];
  const int number = global_rank(*first_failure_);
  std::fprintf(stderr, "accel launch: rank %d failed: %s\n", number, describe(*rank.end()).c_str());
  const std::vector<std::string> lines = rank.last_lines(kShownLines);
  if (lines.empty()) return;
  std::fprintf(stderr, "the last lines of rank %d:\n", number);
  for (const std::string& line : lines) std::fprintf(stderr, "  %s\n", line.c_str());
}

}  // namespace accel::launch
