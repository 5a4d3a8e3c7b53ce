#include "launch/job.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "launch/ranks/failure_report.hpp"
#include "launch/ranks/output_streams.hpp"
#include "launch/ranks/private_folder.hpp"
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

std::string prefix_of_lines(const LaunchOptions& options, int rank, int local_rank) {
  const std::pair<std::string_view, std::string> names[] = {
      {"${role_name}", options.role}, {"${rank}", std::to_string(rank)}, {"${local_rank}", std::to_string(local_rank)}};
  std::string prefix = options.line_prefix;
  for (const auto& [name, value] : names)
    for (size_t at = prefix.find(name); at != std::string::npos; at = prefix.find(name, at + value.size()))
      prefix.replace(at, name.size(), value);
  return prefix;
}

}  // namespace

Job::Job(const LaunchOptions& options, const JobPlace& place, const Guardian& guardian, const sigset_t& signal_mask,
         const PrepareRank& prepare)
    : place_(place), mark_(guardian.mark()), log_dir_(options.log_dir) {
  start(options, guardian, signal_mask, prepare);
}

Job::~Job() { kill_strays(mark_); }

void Job::start(const LaunchOptions& options, const Guardian& guardian, const sigset_t& signal_mask,
                const PrepareRank& prepare) {
  if (!log_dir_.empty()) make_private_folder(log_dir_);
  Pipe failures = make_pipe();
  ranks_.reserve(static_cast<size_t>(place_.local_processes));
  for (int local_rank = 0; local_rank < place_.local_processes; ++local_rank) {
    RankCommand command = command_of(options, local_rank);
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

RankCommand Job::command_of(const LaunchOptions& options, int local_rank) {
  RankCommand command;
  command.program = options.program;
  command.environment = rank_environment(options, place_, local_rank);
  command.environment.push_back(kMarkVariable + ('=' + mark_));
  command.is_first = local_rank == 0;
  const OutputStreams tee = output_streams("--tee", options.tee, local_rank);
  const OutputStreams redirected = output_streams("--redirects", options.redirects, local_rank);
  const bool has_prefix = !options.line_prefix.empty();
  const bool is_shown = command.is_first || has_prefix;
  command.shows_stdout = (is_shown || tee.out) && !redirected.out;
  command.shows_stderr = (is_shown || tee.error) && !redirected.error;
  command.prefix = prefix_of_lines(options, global_rank(static_cast<size_t>(local_rank)), local_rank);
  // The first rank has the launcher's own output, unless something is to be done to it.
  const bool is_untouched =
      command.is_first && !has_prefix && command.shows_stdout && command.shows_stderr && options.log_dir.empty();
  if (!is_untouched) command.shown = &shown_;
  if (options.log_dir.empty()) return command;
  command.log_file = log_file(static_cast<size_t>(local_rank));
  if (place_.restart_count > 0)
    command.log_header = text("accel launch: this is attempt ", place_.restart_count + 1, '\n');
  return command;
}

std::string Job::log_file(size_t local_rank) const {
  return log_dir_.empty() ? "" : text(log_dir_, "/rank_", global_rank(local_rank), ".log");
}

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
  if (failed && !first_failure_ && !end_signal_) {
    first_failure_ = failed;
    end(SIGTERM, kGraceAfterFailure);
  } else if (stops_on_purpose && !grace_) {
    grace_.emplace(kGraceAfterRequeue);
  }
}

void Job::end(int signal, Deadline::Milliseconds grace) {
  told_to_end_ = std::min(told_to_end_, Deadline::Clock::now());
  if (signal != end_signal_) send(signal);  // a program may take a second one as a demand for haste
  end_signal_ = signal;
  if (!grace_ || grace < grace_->left()) grace_.emplace(grace);
}

void Job::kill_late() {
  if (!grace_ || !grace_->passed()) return;
  grace_.reset();
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
  failure.told_to_end = told_to_end_;
  failure.last_lines = ranks_[first].last_lines(kShownLines);
  failure.memory_kills = memory_kills_.since();
  if (!log_dir_.empty()) failure.log_file = log_file(first);
  for (size_t other = 0; other < ranks_.size(); ++other)
    if (other != first && ranks_[other].end()) failure.others.push_back({global_rank(other), end_of(other)});
  std::fputs(describe(failure).c_str(), stderr);
}

}  // namespace accel::launch
