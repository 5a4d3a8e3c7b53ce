#include "launch/function_job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "launch/rank_environment.hpp"

namespace accel::launch {
namespace {

// After a failure the others have lost their peer: all are gone within two seconds.
constexpr Deadline::Milliseconds kGraceOfFunctions(1500);

// As the kernel has them: separated by zeros, with one at the end.
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

void make_log_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::kIo, "the folder of logs '", folder, "' cannot be made: ", error.message());
}

}  // namespace

void write_report(int descriptor, int local_rank, int status, const std::string& message) {
  RankReport report;
  report.local_rank = local_rank;
  report.status = status;
  message.copy(report.message, sizeof(report.message) - 1);
  while (write(descriptor, &report, sizeof(report)) < 0 && errno == EINTR) {
  }
}

FunctionJob::FunctionJob(FunctionLaunch launch) : launch_(std::move(launch)) {
  if (!launch_.log_folder.empty()) make_log_folder(launch_.log_folder);
}

std::optional<FunctionFailure> FunctionJob::run() {
  for (;; ++restarts_) {
    start();
    watch();
    if (!first_failure_ || stopped_ || restarts_ == launch_.max_restarts) break;
  }
  if (stopped_ == Status::kTimeout)
    fail(Status::kTimeout, "the ranks did not end within timeout_ms, ", launch_.deadline->total().count(),
         " ms, and were ended");
  if (stopped_) fail(Status::kCancelled, "accel_interrupt() has ended the ranks");
  if (!first_failure_) return std::nullopt;
  return describe_failure();
}

void FunctionJob::start() {
  ranks_.clear();
  first_failure_.reset();
  grace_.reset();
  const LaunchOptions& options = launch_.options;
  port_ = options.main_process_port ? *options.main_process_port : free_port();
  token_ = job_token();
  reports_ = make_pipe();
  fcntl(reports_.read_end.number(), F_SETFL, O_NONBLOCK);
  reported_.assign(static_cast<size_t>(options.local_processes()), std::nullopt);
  ranks_.reserve(reported_.size());
  // What is buffered would be written by each copy of this process.
  if (launch_.body) std::fflush(nullptr);
  Pipe failures = make_pipe();
  for (int local_rank = 0; local_rank < options.local_processes(); ++local_rank) {
    RankCommand command = command_of(local_rank);
    command.not_inherited.insert(command.not_inherited.end(),
                                 {failures.read_end.number(), failures.write_end.number()});
    ranks_.emplace_back(command, guardian_, failures);
  }
  failures.write_end.reset();
  reports_.write_end.reset();
  int reason = 0;
  if (read(failures.read_end.number(), &reason, sizeof(reason)) != sizeof(reason)) return;
  fail(Status::kIo, "a rank cannot be started: ", std::strerror(reason));
}

RankCommand FunctionJob::command_of(int local_rank) const {
  LaunchOptions options = launch_.options;
  const int report = reports_.write_end.number();
  options.variables.emplace_back("TORCHELASTIC_RESTART_COUNT", std::to_string(restarts_));
  if (!launch_.body)
    options.variables.emplace_back(kLaunchedVariable, text(launch_.marker, ':', report, ':', local_rank));
  RankCommand command;
  command.environment = rank_environment(options, local_rank, port_, token_);
  command.is_first = local_rank == 0;
  command.log_file = log_file(local_rank);
  pthread_sigmask(SIG_SETMASK, nullptr, &command.signal_mask);
  if (!launch_.body) {
    command.program = own_arguments();
    command.file = "/proc/self/exe";
    command.inherited = report;
    return command;
  }
  command.program = {"function"};
  command.function = [this, local_rank, report] { return launch_.body(local_rank, report); };
  command.not_inherited = {guardian_.descriptor(), reports_.read_end.number()};
  for (const RankProcess& rank : ranks_)
    if (rank.output() >= 0) command.not_inherited.push_back(rank.output());
  return command;
}

void FunctionJob::watch() {
  while (is_running()) {
    wait_for_event();
    collect_ended();
    if (!stopped_ && interruption_.raised()) stopped_ = Status::kCancelled;
    if (!stopped_ && launch_.deadline && launch_.deadline->passed()) stopped_ = Status::kTimeout;
    if (stopped_ || first_failure_) end_all();
  }
}

bool FunctionJob::is_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_running(); });
}

void FunctionJob::wait_for_event() {
  // The last moments of a process, which has closed its files but cannot be waited for, are short.
  const int timeout = reports_.read_end.is_open() ? static_cast<int>(launch_.monitor_interval.count()) : 1;
  std::vector<pollfd> descriptors = {{reports_.read_end.number(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) descriptors.push_back({rank.output(), POLLIN, 0});
  if (poll(descriptors.data(), descriptors.size(), timeout) <= 0) return;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (descriptors[i + 1].revents != 0) ranks_[i].read_output();
}

// Of several that ended at once, the one that was killed is the cause: the others may have missed their peer.
void FunctionJob::collect_ended() {
  const bool is_ending = first_failure_.has_value() || stopped_.has_value();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].is_running()) continue;
    ranks_[i].collect();
    if (ranks_[i].is_running()) continue;
    read_reports();  // what it wrote before its end
    const bool succeeded = reported_[i] && reported_[i]->status >= 0;
    if (is_ending || succeeded) continue;
    if (!first_failure_ || (ranks_[i].end()->by_signal && !ranks_[*first_failure_].end()->by_signal))
      first_failure_ = i;
  }
}

void FunctionJob::read_reports() {
  if (!reports_.read_end.is_open()) return;
  RankReport report;
  ssize_t count = 0;
  while ((count = read(reports_.read_end.number(), &report, sizeof(report))) == sizeof(report)) {
    const auto rank = static_cast<size_t>(report.local_rank);
    if (rank >= reported_.size()) continue;
    report.message[sizeof(report.message) - 1] = '\0';
    reported_[rank] = report;
  }
  if (count == 0) reports_.read_end.reset();
}

void FunctionJob::end_all() {
  if (!grace_) {
    for (const RankProcess& rank : ranks_)
      if (rank.is_running()) rank.send(SIGTERM);
    grace_.emplace(kGraceOfFunctions);
  } else if (grace_->passed()) {
    for (const RankProcess& rank : ranks_)
      if (rank.is_running()) rank.send(SIGKILL);
  }
}

FunctionFailure FunctionJob::describe_failure() const {
  const size_t place = *first_failure_;
  const int rank = global_rank(static_cast<int>(place));
  const std::string name = text("rank ", rank, " of ", launch_.options.num_processes);
  const std::string restarts = restarts_ == 0 ? "" : text(", after ", restarts_, " restarts");
  if (reported_[place])
    return {rank, reported_[place]->status, text(name, " failed", restarts, ": ", reported_[place]->message)};
  const RankProcess& process = ranks_[place];
  std::string message = text(name, " ended before its function returned", restarts, ": ", describe(*process.end()));
  const std::vector<std::string> last = process.last_lines(1);
  if (!last.empty()) message += "; its last line was '" + last.front() + "'";
  if (!launch_.log_folder.empty()) message += "; its output is in " + log_file(static_cast<int>(place));
  return {rank, 0, std::move(message)};
}

std::string FunctionJob::log_file(int local_rank) const {
  if (launch_.log_folder.empty()) return "";
  return text(launch_.log_folder, "/rank_", global_rank(local_rank), ".log");
}

int FunctionJob::global_rank(int local_rank) const {
  return launch_.options.machine_rank * launch_.options.local_processes() + local_rank;
}

}  // namespace accel::launch
