// SPDX-License-Identifier: Apache-2.0
#include "launch/job.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "launch/ranks/failure_report.hpp"
#include "launch/ranks/private_folder.hpp"
#include "launch/ranks/rank_command.hpp"
#include "launch/ranks/rank_environment.hpp"
#include "launch/ranks/stray_processes.hpp"

namespace accel::launch {
namespace {

// After a failure the others have lost their peer: all are gone within two seconds.
constexpr Deadline::Milliseconds kGraceAfterFailure(1500);
// Ranks that stop on purpose may write a checkpoint together, and end one after the other.
constexpr Deadline::Milliseconds kGraceAfterRequeue(30000);
constexpr size_t kShownLines = 20;

bool asks_for_requeue(const ProcessEnd& end) { return !end.by_signal && end.number == kRequeueStatus; }

}  // namespace

Job::Job(const LaunchOptions& options, const HostRanks& host_ranks, const Guardian& guardian,
         const sigset_t& signal_mask, const PrepareRank& prepare)
    : host_ranks_(host_ranks), mark_(guardian.mark()), log_dir_(options.output.log_dir) {
  start(options, guardian, signal_mask, prepare);
}

Job::~Job() { kill_strays(mark_); }

void Job::start(const LaunchOptions& options, const Guardian& guardian, const sigset_t& signal_mask,
                const PrepareRank& prepare) {
  if (!log_dir_.empty()) make_private_folder(log_dir_);
  Pipe failures = make_pipe();
  ranks_.reserve(static_cast<size_t>(host_ranks_.local_processes));
  for (int local_rank = 0; local_rank < host_ranks_.local_processes; ++local_rank) {
    RankCommand command = rank_command(options, host_ranks_, local_rank, shown_);
    command.environment.push_back(kMarkVariable + ('=' + mark_));
    command.signal_mask = signal_mask;
    if (prepare) prepare(command, local_rank);
    std::vector<pollfd> of_others;
    for (const RankProcess& rank : ranks_) rank.add_polled(of_others);
    for (const pollfd& output : of_others) command.not_inherited.push_back(output.fd);
    ranks_.emplace_back(command, guardian, failures);
    log(LogLevel::kInfo, "rank ", global_rank(static_cast<size_t>(local_rank)), " is process ",
        ranks_.back().process());
  }
  failures.write_end.reset();

  int reason = 0;
  if (read(failures.read_end.number(), &reason, sizeof(reason)) != sizeof(reason)) return;
  const std::string& program = options.program.front();
  require(reason != ENOENT, Status::kNotFound, "'", program,
          "' was not found; expected the path of a program, or a name that is in PATH");
  fail(Status::kIo, "'", program, "' cannot be started: ", std::strerror(reason));
}

std::string Job::log_file(size_t local_rank) const { return rank_log_file(log_dir_, global_rank(local_rank)); }

// Ranks whose output has not been shown yet are not done with.
bool Job::is_running() const {
  return shown_.has_pending() ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_running(); });
}

void Job::send(int signal) const {
  for (const RankProcess& rank : ranks_) {
    if (rank.is_running()) rank.send(signal);
  }
}

void Job::add_outputs(std::vector<pollfd>& polled) const {
  for (const RankProcess& rank : ranks_) rank.add_polled(polled);
  polled.push_back(shown_.out.polled());
  polled.push_back(shown_.error.polled());
}

void Job::read_outputs(const pollfd* polled) {
  for (RankProcess& rank : ranks_) polled = rank.read_polled(polled);
  shown_.out.write_some(polled[0]);
  shown_.error.write_some(polled[1]);
}

void Job::collect_ended() {
  std::optional<size_t> failed;
  bool stops_on_purpose = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].is_running()) continue;
    ranks_[i].collect();
    if (ranks_[i].is_running()) continue;
    log(LogLevel::kInfo, "rank ", global_rank(i), " has ended with ", describe(*ranks_[i].end()));
    if (ranks_[i].end()->is_success()) continue;
    if (asks_for_requeue(*ranks_[i].end())) {
      stops_on_purpose = true;
      continue;
    }
    // If several ended at once, the one that was killed is the cause: the others may have missed their peer.
    if (!failed || (ranks_[i].end()->by_signal && !ranks_[*failed].end()->by_signal)) failed = i;
  }
  if (failed && !first_failure_ && !ending_.is_signalled()) {
    first_failure_ = failed;
    end(SIGTERM, kGraceAfterFailure);
  } else if (stops_on_purpose) {
    ending_.expect(kGraceAfterRequeue);
  }
}

void Job::end(int signal, Deadline::Milliseconds grace) {
  if (ending_.begin(signal, grace)) send(signal);  // a program may take a second one as a demand for haste
}

void Job::kill_late() {
  if (!ending_.take_late()) return;
  send(SIGKILL);
  // Nor does anybody wait for a reader that does not read.
  shown_.out.drop();
  shown_.error.drop();
}

int Job::exit_status() const {
  if (first_failure_) return end_of(*first_failure_).exit_status();
  const bool stopped = std::any_of(ranks_.begin(), ranks_.end(),
                                   [](const RankProcess& rank) { return rank.end() && asks_for_requeue(*rank.end()); });
  return stopped ? kRequeueStatus : 0;
}

bool Job::all_succeeded() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return rank.end() && rank.end()->is_success(); });
}

void Job::report_failure() const {
  const size_t first = *first_failure_;
  RankFailure failure;
  failure.first = {global_rank(first), end_of(first)};
  failure.start = start_;
  failure.told_to_end = ending_.begun();
  failure.last_lines = ranks_[first].last_lines(kShownLines);
  failure.memory_kills = memory_kills_.since();
  if (!log_dir_.empty()) failure.log_file = log_file(first);
  for (size_t other = 0; other < ranks_.size(); ++other)
    if (other != first && ranks_[other].end()) failure.others.push_back({global_rank(other), end_of(other)});
  std::fputs(describe(failure).c_str(), stderr);
}

}  // namespace accel::launch
