// SPDX-License-Identifier: Apache-2.0
#include "launch/function_launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "launch/ranks/process_end.hpp"

namespace accel::launch {
namespace {

// Ranks that lost one, or that the caller has stopped: all are gone within two seconds.
constexpr Deadline::Milliseconds kGraceOfFunctions(1500);

// It fits into one write to a pipe, which no other one divides.
struct RankReport {
  int32_t local_rank = 0;
  int32_t status = 0;
  char message[1016] = {};
};

// The arguments are in the kernel's form: separated by zeros, with one at the end.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\0', begin), all.size());
    arguments.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  require(!arguments.empty(), Status::kIo,
          "the arguments of this program cannot be read from /proc/self/cmdline; expected a mounted /proc");
  return arguments;
}

HostRanks ranks_of_host(const LaunchOptions& job, int port, int restarts) {
  HostRanks host_ranks;
  host_ranks.local_processes = job.local_processes();
  host_ranks.first_rank = job.machine_rank * host_ranks.local_processes;
  host_ranks.world_size = job.num_processes;
  host_ranks.host_number = job.machine_rank;
  host_ranks.num_hosts = job.num_machines;
  host_ranks.master_port = port;
  host_ranks.restart_count = restarts;
  host_ranks.token = job.job_id;
  if (host_ranks.token.empty() && host_ranks.num_hosts == 1) host_ranks.token = random_digits(16);
  return host_ranks;
}

sigset_t signal_mask_of_thread() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

}  // namespace

void report_end(const LaunchedRank& rank, int status, const std::string& message) {
  RankReport report;
  report.local_rank = rank.local_rank;
  report.status = status;
  message.copy(report.message, sizeof(report.message) - 1);
  while (write(rank.report, &report, sizeof(report)) < 0 && errno == EINTR) {
  }
  if (status < 0) return;
  // There is nothing left to end: when another rank fails, the release comes beside SIGTERM.
  signal(SIGTERM, SIG_IGN);
  char never = 0;
  while (read(rank.release, &never, 1) < 0 && errno == EINTR) {
  }
}

FunctionLaunch::FunctionLaunch(FunctionOptions options) : options_(std::move(options)) {
  struct sigaction action = {};
  sigaction(SIGCHLD, nullptr, &action);
  require(
      action.sa_handler != SIG_IGN && (action.sa_flags & SA_NOCLDWAIT) == 0, Status::kInvalidState,
      "SIGCHLD is ignored in this process, so that the system does not tell how ranks end; expected its default, or a "
      "handler");
}

std::optional<FunctionFailure> FunctionLaunch::run() {
  for (;; ++restarts_) {
    start();
    watch();
    if (!first_failure() || stopped_ || restarts_ == options_.max_restarts) break;
  }
  if (stopped_ == Status::kTimeout)
    fail(Status::kTimeout, "the ranks did not end within timeout_ms, ", options_.deadline->total().count(),
         " ms, and were ended");
  if (stopped_) fail(*stopped_, "accel_interrupt() has ended the ranks");
  const std::optional<size_t> failed = first_failure();
  return failed ? std::optional<FunctionFailure>(describe_failure(*failed)) : std::nullopt;
}

void FunctionLaunch::start() {
  job_.reset();
  silent_end_.reset();
  reports_ = make_pipe();
  release_ = make_pipe();
  fcntl(reports_.read_end.number(), F_SETFL, O_NONBLOCK);
  reported_.assign(static_cast<size_t>(options_.job.local_processes()), std::nullopt);
  if (!options_.job.main_process_port) port_.emplace();
  LaunchOptions job = options_.job;
  // Buffered output would be written by each copy of this process.
  if (options_.body)
    std::fflush(nullptr);
  else
    job.program = own_arguments();
  const int port = port_ ? port_->number() : *options_.job.main_process_port;
  job_.emplace(job, ranks_of_host(job, port, restarts_), guardian_, signal_mask_of_thread(),
               [this](RankCommand& command, int local_rank) { prepare(command, local_rank); });
  reports_.write_end.reset();
  release_.read_end.reset();
}

void FunctionLaunch::prepare(RankCommand& command, int local_rank) const {
  const LaunchedRank rank{local_rank, reports_.write_end.number(), release_.read_end.number()};
  if (options_.body) {
    command.function = [this, rank] { return options_.body(rank); };
    command.not_inherited = {reports_.read_end.number(), release_.write_end.number()};
    return;
  }
  command.file = "/proc/self/exe";
  command.inherited = {rank.report, rank.release};
  command.environment.push_back(
      text(kLaunchedVariable, '=', options_.marker, ':', rank.local_rank, ':', rank.report, ':', rank.release));
}

void FunctionLaunch::watch() {
  while (job_->is_running()) {
    wait_for_event();
    job_->collect_ended();
    if (!stopped_ && interruption_.raised()) stopped_ = Status::kCancelled;
    if (!stopped_ && options_.deadline && options_.deadline->passed()) stopped_ = Status::kTimeout;
    check_reports();
    if ((stopped_ || silent_end_) && !job_->grace()) job_->end(SIGTERM, kGraceOfFunctions);
    job_->kill_late();
  }
}

void FunctionLaunch::wait_for_event() {
  std::vector<pollfd> polled = {{reports_.read_end.number(), POLLIN, 0}};
  job_->add_outputs(polled);
  // All ranks have closed the pipe: the last moments of a process are short.
  const int timeout = reports_.read_end.is_open() ? static_cast<int>(options_.monitor_interval.count()) : 1;
  if (poll(polled.data(), polled.size(), timeout) > 0) job_->read_outputs(polled.data() + 1);
}

void FunctionLaunch::read_reports() {
  RankReport report;
  while (reports_.read_end.is_open()) {
    const ssize_t count = read(reports_.read_end.number(), &report, sizeof(report));
    if (count == 0) reports_.read_end.reset();
    if (count != sizeof(report)) return;
    const auto rank = static_cast<size_t>(report.local_rank);
    report.message[sizeof(report.message) - 1] = '\0';
    if (rank < reported_.size()) reported_[rank] = Report{report.status, report.message};
  }
}

void FunctionLaunch::check_reports() {
  std::vector<bool> ended;
  for (const RankProcess& rank : job_->ranks()) ended.push_back(!rank.is_running());
  read_reports();
  if (!first_failure() && !stopped_)
    for (size_t i = 0; i < ended.size(); ++i)
      if (ended[i] && !reported_[i]) silent_end_ = i;
  const bool all_are_done =
      std::all_of(reported_.begin(), reported_.end(), [](const auto& report) { return report && report->status >= 0; });
  if (all_are_done || first_failure() || stopped_) release_.write_end.reset();
}

std::optional<size_t> FunctionLaunch::first_failure() const {
  return job_->first_failure() ? job_->first_failure() : silent_end_;
}

FunctionFailure FunctionLaunch::describe_failure(size_t local_rank) const {
  const int rank = job_->global_rank(local_rank);
  const std::string name = text("rank ", rank, " of ", options_.job.num_processes);
  const std::string restarts = restarts_ == 0 ? "" : text(", after ", restarts_, " restarts");
  const auto& report = reported_[local_rank];
  if (report && report->status < 0)
    return {rank, report->status, text(name, " failed", restarts, ": ", report->message)};
  if (report) return {rank, 0, text(name, " has ended, and another part of this program has waited for its process")};
  const RankProcess& process = job_->ranks()[local_rank];
  std::string message = text(name, " ended before its function returned", restarts, ": ", describe(*process.end()));
  const std::vector<std::string> last = process.last_lines(1);
  if (!last.empty()) message += "; its last line is '" + last.front() + "'";
  const std::string log = job_->log_file(local_rank);
  if (!log.empty()) message += "; its output is in " + log;
  return {rank, 0, std::move(message)};
}

}  // namespace accel::launch
