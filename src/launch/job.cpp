#include "launch/job.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "launch/rank_environment.hpp"

namespace accel::launch {
namespace {

// After a failure the others have lost their peer: all are gone within two seconds.
constexpr Deadline::Milliseconds kGraceAfterFailure(1500);
// Ranks that stop on purpose may write a checkpoint together, and end one after the other.
constexpr Deadline::Milliseconds kGraceAfterRequeue(30000);
constexpr size_t kShownLines = 20;

bool asks_for_requeue(const ProcessEnd& end) { return !end.by_signal && end.number == kRequeueStatus; }

}  // namespace

Job::Job(const LaunchOptions& options, const JobPlace& place, const Guardian& guardian, const sigset_t& signal_mask,
         const PrepareRank& prepare)
    : place_(place) {
  start(options, guardian, signal_mask, prepare);
}

void Job::start(const LaunchOptions& options, const Guardian& guardian, const sigset_t& signal_mask,
                const PrepareRank& prepare) {
  Pipe failures = make_pipe();
  ranks_.reserve(static_cast<size_t>(place_.local_processes));
  for (int local_rank = 0; local_rank < place_.local_processes; ++local_rank) {
    RankCommand command;
    command.program = options.program;
    command.environment = rank_environment(options, place_, local_rank);
    command.is_first = local_rank == 0;
    command.signal_mask = signal_mask;
    if (prepare) prepare(command, local_rank);
    for (const RankProcess& rank : ranks_) command.not_inherited.push_back(rank.output());
    ranks_.emplace_back(command, guardian, failures);
  }
  failures.write_end.reset();

  int reason = 0;
  if (read(failures.read_end.number(), &reason, sizeof(reason)) != sizeof(reason)) return;
  const std::string& program = options.program.front();
  require(reason != ENOENT, Status::kNotFound, "'", program,
          "' was not found; expected the path of a program, or a name that is in PATH");
  fail(Status::kIo, "'", program, "' cannot be started: ", std::strerror(reason));
}

bool Job::is_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_running(); });
}

void Job::send(int signal) const {
  for (const RankProcess& rank : ranks_) {
    if (rank.is_running()) rank.send(signal);
  }
}

void Job::add_outputs(std::vector<pollfd>& polled) const {
  for (const RankProcess& rank : ranks_) polled.push_back({rank.output(), POLLIN, 0});
}

void Job::read_outputs(const pollfd* polled) {
  for (RankProcess& rank : ranks_) {
    if (polled++->revents != 0) rank.read_output();
  }
}

void Job::collect_ended() {
  std::optional<size_t> failed;
  bool stops_on_purpose = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].is_running()) continue;
    ranks_[i].collect();
    if (ranks_[i].is_running() || ranks_[i].end()->is_success()) continue;
    if (asks_for_requeue(*ranks_[i].end())) {
      stops_on_purpose = true;
      continue;
    }
    // Of several that ended at once, the one that was killed is the cause: the others may have missed their peer.
    if (!failed || (ranks_[i].end()->by_signal && !ranks_[*failed].end()->by_signal)) failed = i;
  }
  if (failed && !first_failure_ && !is_told_to_end_) {
    first_failure_ = failed;
    end(SIGTERM, kGraceAfterFailure);
  } else if (stops_on_purpose && !grace_) {
    grace_.emplace(kGraceAfterRequeue);
  }
}

void Job::end(int signal, Deadline::Milliseconds grace) {
  is_told_to_end_ = true;
  send(signal);
  if (!grace_ || grace < grace_->left()) grace_.emplace(grace);
}

void Job::kill_late() {
  if (!grace_ || !grace_->passed()) return;
  grace_.reset();
  send(SIGKILL);
}

int Job::exit_status() const {
  if (first_failure_) return end_of(*first_failure_).exit_status();
  const bool stopped = std::any_of(ranks_.begin(), ranks_.end(),
                                   [](const RankProcess& rank) { return rank.end() && asks_for_requeue(*rank.end()); });
  return stopped ? kRequeueStatus : 0;
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
