#include "launch/hosts/host_agent.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "launch/hosts/shared_secret.hpp"
#include "os/host_name.hpp"

namespace accel::launch {
namespace {

// Told to stop, a program may want to write a checkpoint. A second signal ends the wait.
constexpr Deadline::Milliseconds kGraceAfterSignal(30000);
// A batch system signals all processes of a job, and its own launcher forwards to this one what it gets.
constexpr Deadline::Milliseconds kOneSignal(1000);
constexpr Deadline::Milliseconds kGraceWithoutCoordinator(1500);
constexpr Deadline::Milliseconds kFarewellOfRemotes(5000);

Json message_of(const char* type, int attempt, Json::Members members = {}) {
  members.insert(members.begin(), {{"type", Json(type)}, {"attempt", Json::number(int64_t{attempt})}});
  return Json(std::move(members));
}

Json of(int64_t number) { return Json::number(number); }

int integer_in(const Json& message, const char* key) { return static_cast<int>(json_integer(message, key, 0)); }

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int shorter(int timeout, std::optional<Deadline::Milliseconds> other) {
  if (!other) return timeout;
  const int milliseconds = static_cast<int>(other->count()) + 1;  // what is left is rounded down
  return timeout < 0 ? milliseconds : std::min(timeout, milliseconds);
}

}  // namespace

HostAgent::HostAgent(const LaunchOptions& options) : options_(options) {
  find_coordinator();
  if (options_.hosts.is_remote) lifeline_ = FileDescriptor(options_.hosts.lifeline);
  remotes_.reserve(options_.hosts.listed.size());
  for (size_t number = 1; number < options_.hosts.listed.size(); ++number)
    remotes_.emplace_back(options_, number, guardian_, signals_.original_mask());
}

HostDescription HostAgent::description() const {
  HostDescription own;
  own.name = host_name();
  own.version = options_.hosts.version;
  own.program = name_of(options_.program.front());
  own.local_processes = options_.local_processes();
  own.num_processes = options_.num_processes;
  if (!options_.hosts.is_elastic || options_.machine_rank > 0) own.machine_rank = options_.machine_rank;
  own.clock_ms = clock_ms();
  return own;
}

// The launcher of host 0 has it. If the hosts have no numbers yet, the one whose address is the coordinator's, and
// there the first one that gets the port.
void HostAgent::find_coordinator() {
  const HostOptions& hosts = options_.hosts;
  Listener listener;
  if (!is_alone()) {
    const bool has_it = options_.machine_rank == 0 && (!hosts.is_elastic || is_own_address(hosts.coordinator));
    if (has_it) {
      const std::string address = is_loopback_host(hosts.coordinator) ? "127.0.0.1" : hosts.own_address;
      listener = listen_at(address, hosts.coordinator_port);
      require(listener.socket.is_open() || hosts.is_elastic, Status::kIo, "port ", hosts.coordinator_port,
              " is used by another program; choose another one with --main-process-port, the same on all hosts");
    }
    if (!listener.socket.is_open()) {
      link_.emplace(hosts, description());
      return;
    }
  }
  const int first_port = is_alone() ? options_.main_process_port.value_or(0) : 0;
  coordinator_.emplace(hosts, description(), std::move(listener), first_port);
  link_.emplace(hosts, coordinator_->take_own_link());
}

int HostAgent::run() {
  while (!status_ || (job_ && job_->is_running()) || waits_for_others()) {
    wait_for_event();
    handle_signals();
    if (job_) job_->kill_late();
    look_at_job();
    handle_messages();
    check_link();
    if (status_ && !farewell_) farewell_.emplace(kFarewellOfRemotes);
  }
  if (!reason_.empty()) say(reason_);
  if (stop_signal_) std::fprintf(stderr, "accel launch: stopped by %s\n", signal_name(*stop_signal_).c_str());
  return *status_;
}

bool HostAgent::waits_for_others() const {
  if (coordinator_ && !coordinator_->is_done()) return true;
  return farewell_ && !farewell_->passed() &&
         std::any_of(remotes_.begin(), remotes_.end(), [](const RemoteLauncher& one) { return one.is_running(); });
}

void HostAgent::say(const std::string& what) const {
  if (!options_.hosts.is_remote) std::fprintf(stderr, "accel launch: %s\n", what.c_str());
}

void HostAgent::wait_for_event() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}, link_->polled(), {lifeline_.number(), POLLIN, 0}};
  constexpr size_t kLink = 1, kLifeline = 2, kOthers = 3;
  int timeout = shorter(-1, link_->next_look());
  if (job_) {
    job_->add_outputs(polled);
    if (job_->grace()) timeout = shorter(timeout, job_->grace()->left());
  }
  const size_t of_remotes = polled.size();
  for (const RemoteLauncher& remote : remotes_) remote.add_polled(polled);
  const size_t of_coordinator = polled.size();
  if (coordinator_) {
    coordinator_->add_polled(polled);
    timeout = shorter(timeout, coordinator_->next_look());
  }
  const int ready = poll(polled.data(), polled.size(), timeout);
  if (ready <= 0)
    for (pollfd& one : polled) one.revents = 0;
  if (job_) job_->read_outputs(polled.data() + kOthers);
  link_->transfer(polled[kLink].revents);
  for (size_t i = 0; i < remotes_.size(); ++i)
    remotes_[i].transfer(polled.data() + of_remotes + i * RemoteLauncher::kPolled);
  if (coordinator_) coordinator_->transfer(polled.data() + of_coordinator);
  if (polled[kLifeline].revents != 0) {
    lifeline_.reset();
    stop(SIGTERM);
  }
}

void HostAgent::handle_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      if (job_) job_->collect_ended();
      collect_remotes();
    } else if (*signal == SIGTSTP) {
      pause();
    } else if (*signal == SIGUSR1 || *signal == SIGUSR2) {
      if (job_) job_->send(*signal);
    } else {
      stop(*signal);
    }
  }
}

// One that ends before it has joined would be waited for in vain.
void HostAgent::collect_remotes() {
  for (RemoteLauncher& remote : remotes_) {
    if (!remote.is_running()) continue;
    remote.collect();
    if (remote.end() && !status_ && coordinator_)
      coordinator_->give_up(text("the launcher of ", remote.title(), " was started by ", options_.ssh_command,
                                 " and has ended: ", describe(*remote.end())));
  }
}

void HostAgent::stop(int signal) {
  const bool is_second = stop_signal_.has_value();
  if (is_second && signal != SIGINT && !one_signal_->passed()) return;
  if (!is_second) {
    stop_signal_ = signal;
    one_signal_.emplace(kOneSignal);
  }
  if (job_ && job_->is_running()) {
    if (is_second)
      job_->send(SIGKILL);
    else
      job_->end(signal, kGraceAfterSignal);
  }
  if (link_->is_joined())
    link_->send(message_of("stop", attempt_, {{"signal", of(signal)}, {"at_once", Json(is_second)}}));
  else
    status_ = 128 + signal;
}

void HostAgent::pause() {
  if (!is_alone()) return say("ranks on several hosts cannot be stopped for a while: the others would miss them");
  if (job_) job_->send(SIGSTOP);
  raise(SIGSTOP);
  if (job_) job_->send(SIGCONT);
}

void HostAgent::handle_messages() {
  while (const std::optional<Json> message = link_->next()) handle(*message);
}

void HostAgent::handle(const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "run") {
    start_attempt(message);
  } else if (type == "end") {
    end_attempt(message);
  } else if (type == "waiting") {
    say(json_text(message, "state", ""));
  } else if (type == "over") {
    status_ = integer_in(message, "status");
    reason_ = json_text(message, "reason", "");
    if (job_ && job_->is_running()) job_->end(SIGTERM, kGraceWithoutCoordinator);
  }
}

void HostAgent::start_attempt(const Json& message) {
  attempt_ = integer_in(message, "attempt");
  has_told_failure_ = is_reported_ = false;
  JobPlace place;
  place.first_rank = integer_in(message, "first_rank");
  place.local_processes = options_.local_processes();
  place.world_size = integer_in(message, "world_size");
  place.host_number = integer_in(message, "host_number");
  place.num_hosts = integer_in(message, "num_hosts");
  if (!is_alone()) place.master_addr = options_.hosts.coordinator;
  place.master_port = integer_in(message, "port");
  place.restart_count = attempt_;
  const std::string nonce = json_text(message, "nonce", "");
  place.token = options_.hosts.secret.empty() ? nonce : authentication_code(options_.hosts.secret, "token " + nonce);
  try {
    job_.reset();
    job_.emplace(options_, place, guardian_, signals_.original_mask());
    // A signal that came before there was a job.
    if (stop_signal_) job_->end(*stop_signal_, kGraceAfterSignal);
  } catch (const Error& error) {
    if (is_alone()) throw;
    const int status = error.status() == Status::kNotFound ? 127 : 126;
    std::fprintf(stderr, "accel launch: %s\n", error.what());
    link_->send(message_of("failed", attempt_,
                           {{"rank", of(place.first_rank)},
                            {"status", of(status)},
                            {"what", Json(error.message())},
                            {"hopeless", Json(true)}}));
    link_->send(message_of("ended", attempt_, {{"status", of(status)}, {"finished", Json(false)}}));
  }
}

void HostAgent::end_attempt(const Json& message) {
  if (!job_ || !job_->is_running() || integer_in(message, "attempt") != attempt_) return;
  const std::string why = json_text(message, "why", "");
  if (!why.empty() && !json_flag(message, "is_cause", false)) say(why);
  job_->end(integer_in(message, "signal"), Deadline::Milliseconds(integer_in(message, "grace_ms")));
}

void HostAgent::look_at_job() {
  if (!job_ || is_reported_) return;
  if (job_->first_failure() && !has_told_failure_) {
    has_told_failure_ = true;
    const size_t failed = *job_->first_failure();
    const ProcessEnd& end = job_->end_of(failed);
    link_->send(message_of(
        "failed", attempt_,
        {{"rank", of(job_->global_rank(failed))}, {"status", of(end.exit_status())}, {"what", Json(describe(end))}}));
  }
  if (job_->is_running()) return;
  is_reported_ = true;
  if (job_->first_failure()) job_->report_failure();
  link_->send(
      message_of("ended", attempt_, {{"status", of(job_->exit_status())}, {"finished", Json(job_->all_succeeded())}}));
}

// Without a coordinator there is no job: the ranks are ended. After a mere silence this host may come back.
void HostAgent::check_link() {
  if (link_->end().empty() || status_) return;
  const bool is_ended = !job_ || !job_->is_running();
  if (!is_ended) {
    if (!job_->grace()) {
      say(link_->end());
      job_->end(SIGTERM, kGraceWithoutCoordinator);
    }
    return;
  }
  if (options_.hosts.max_restarts > 0 && job_ && !stop_signal_) {
    job_.reset();
    say(link_->end() + "; trying to join again");
    link_->join_again();
    return;
  }
  reason_ = link_->end();
  status_ = stop_signal_ ? 128 + *stop_signal_ : 1;
}

}  // namespace accel::launch
