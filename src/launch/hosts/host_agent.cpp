// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_agent.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "os/host_name.hpp"
#include "os/socket_address.hpp"

namespace accel::launch {
namespace {

// Told to stop, a program may want to write a checkpoint. A second signal ends the wait.
constexpr Deadline::Milliseconds kGraceAfterSignal(30000);
constexpr Deadline::Milliseconds kGraceWithoutCoordinator(1500);
constexpr Deadline::Milliseconds kFarewellOfRemotes(5000);

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

int shorter(int timeout, std::optional<Deadline::Milliseconds> other) {
  if (!other) return timeout;
  const int milliseconds = static_cast<int>(other->count()) + 1;  // what is left is rounded down
  return timeout < 0 ? milliseconds : std::min(timeout, milliseconds);
}

}  // namespace

HostAgent::HostAgent(const LaunchOptions& options)
    : options_(options), attempt_(options_, guardian_, signals_.original_mask()) {
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
      const bool stays_here = is_loopback_host(hosts.coordinator);
      listener =
          listen_at(stays_here ? loopback_address(hosts.coordinator) : hosts.own_address, hosts.coordinator_port);
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
  while (!status_ || attempt_.is_running() || waits_for_others()) {
    wait_for_event();
    handle_signals();
    if (attempt_.job() != nullptr) attempt_.job()->kill_late();
    send_news();
    handle_messages();
    check_link();
    if (status_ && !farewell_) farewell_.emplace(kFarewellOfRemotes);
  }
  if (!reason_.empty()) say(reason_);
  if (stop_.signal()) std::fprintf(stderr, "accel launch: stopped by %s\n", signal_name(*stop_.signal()).c_str());
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
  Job* const job = attempt_.job();
  if (job != nullptr) {
    job->add_outputs(polled);
    if (job->grace()) timeout = shorter(timeout, job->grace()->left());
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
  if (job != nullptr) job->read_outputs(polled.data() + kOthers);
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
  Job* const job = attempt_.job();
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) {
      if (job != nullptr) job->collect_ended();
      collect_remotes();
    } else if (*signal == SIGTSTP) {
      pause();
    } else if (*signal == SIGUSR1 || *signal == SIGUSR2) {
      if (job != nullptr) job->send(*signal);
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
  const StopRequest::Kind kind = stop_.take(signal);
  if (kind == StopRequest::Kind::kRepeated) return;
  const bool in_haste = kind == StopRequest::Kind::kHaste;
  if (attempt_.is_running()) {
    if (in_haste)
      attempt_.job()->send(SIGKILL);
    else
      attempt_.job()->end(signal, kGraceAfterSignal);
  }
  if (link_->is_joined())
    link_->send(attempt_.message("stop", {{"signal", Json::number(int64_t{signal})}, {"at_once", Json(in_haste)}}));
  else
    status_ = 128 + signal;
}

void HostAgent::pause() {
  if (!is_alone()) return say("ranks on several hosts cannot be stopped for a while: the others would miss them");
  if (attempt_.job() != nullptr) attempt_.job()->send(SIGSTOP);
  raise(SIGSTOP);
  if (attempt_.job() != nullptr) attempt_.job()->send(SIGCONT);
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
    status_ = static_cast<int>(json_integer(message, "status", 0));
    reason_ = json_text(message, "reason", "");
    if (attempt_.is_running()) attempt_.job()->end(SIGTERM, kGraceWithoutCoordinator);
  }
}

void HostAgent::start_attempt(const Json& order) {
  try {
    attempt_.start(order);
    // A signal that came before there was a job.
    if (stop_.signal()) attempt_.job()->end(*stop_.signal(), kGraceAfterSignal);
  } catch (const Error& error) {
    if (is_alone()) throw;
    std::fprintf(stderr, "accel launch: %s\n", error.what());
    for (const Json& message : attempt_.failed_start(error)) link_->send(message);
  }
}

void HostAgent::end_attempt(const Json& order) {
  if (!attempt_.is_running() || !attempt_.is_meant_by(order)) return;
  const std::string why = json_text(order, "why", "");
  if (!why.empty() && !json_flag(order, "is_cause", false)) say(why);
  attempt_.job()->end(static_cast<int>(json_integer(order, "signal", 0)),
                      Deadline::Milliseconds(json_integer(order, "grace_ms", 0)));
}

void HostAgent::send_news() {
  for (const Json& message : attempt_.news()) link_->send(message);
}

// Without a coordinator there is no job: the ranks are ended. After a mere silence this host may come back.
void HostAgent::check_link() {
  if (link_->end().empty() || status_) return;
  if (attempt_.is_running()) {
    if (!attempt_.job()->grace()) {
      say(link_->end());
      attempt_.job()->end(SIGTERM, kGraceWithoutCoordinator);
    }
    return;
  }
  if (options_.hosts.max_restarts > 0 && attempt_.job() != nullptr && !stop_.signal()) {
    attempt_.drop();
    say(link_->end() + "; trying to join again");
    link_->join_again();
    return;
  }
  reason_ = link_->end();
  status_ = stop_.signal() ? 128 + *stop_.signal() : 1;
}

}  // namespace accel::launch
