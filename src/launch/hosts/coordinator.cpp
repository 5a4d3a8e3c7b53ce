// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/coordinator.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "launch/job.hpp"

namespace accel::launch {
namespace {

using Milliseconds = Deadline::Milliseconds;

constexpr Milliseconds kLook(200);
constexpr Milliseconds kGraceOfOthers(1500), kGraceForCheckpoint(30000);
constexpr Milliseconds kLateEnd(5000);  // more than the grace

Json number(int64_t value) { return Json::number(value); }

}  // namespace

Coordinator::Coordinator(const HostOptions& options, HostDescription own, Listener listener, int first_port)
    : options_(options),
      roster_(options_, std::move(own), std::move(listener)),
      gathering_(options_),
      outcome_(options_.max_restarts),
      first_port_(first_port) {
  try_to_begin();
}

void Coordinator::transfer(const pollfd* polled) {
  roster_.transfer(polled, [this](HostMember& member) { receive(member); });
  look();
}

std::optional<Milliseconds> Coordinator::next_look() const {
  if (!roster_.is_listening() && phase_ != Phase::kEnding) return std::nullopt;
  return kLook;
}

bool Coordinator::is_done() const {
  return phase_ == Phase::kOver &&
         (phase_end_->passed() ||
          std::all_of(roster_.members().begin(), roster_.members().end(),
                      [](const auto& member) { return member->is_own || !member->link.is_open(); }));
}

void Coordinator::give_up(const std::string& reason) {
  if (phase_ == Phase::kGathering) finish(1, reason);
}

void Coordinator::receive(HostMember& member) {
  try {
    while (!member.is_refused) {
      const std::optional<Json> message = member.link.next();
      if (!message) break;
      member.heartbeat.hear();
      if (member.has_joined)
        handle(member, *message);
      else if (roster_.shake_hands(member, *message))
        join(member, *message);
    }
  } catch (const Error& error) {
    if (member.has_joined)
      lose(member, error.message());
    else
      roster_.refuse(member, roster_.reason_for(member, error.message()));
  }
  if (!member.link.is_open() && member.has_joined) lose(member, "its launcher has ended, or the network broke");
}

void Coordinator::join(HostMember& member, const Json& hello) {
  if (!roster_.admit(member, hello)) return;
  if (phase_ == Phase::kOver) return roster_.refuse(member, "the job is over");
  roster_.welcome(member);
  if (phase_ == Phase::kGathering) return try_to_begin();
  if (phase_ == Phase::kRunning && options_.is_elastic && roster_.running() < options_.max_hosts)
    end_attempt(Reason::kMembership, text(member.description.name, " has joined: the job goes on with more hosts"),
                SIGTERM, kGraceForCheckpoint, -1);
}

void Coordinator::handle(HostMember& member, const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "beat") return;
  if (type == "stop") return take_stop(member, message);
  if (json_integer(message, "attempt", -1) != attempt_ || !member.is_running) return;
  if (type == "failed") take_failure(member, message);
  if (type == "ended") take_end(member, message);
}

void Coordinator::take_failure(HostMember& member, const Json& message) {
  if (phase_ != Phase::kRunning) return;
  outcome_.note_failure(static_cast<int>(json_integer(message, "status", 1)), json_flag(message, "hopeless", false));
  end_attempt(Reason::kFailure,
              text("rank ", json_integer(message, "rank", 0), " on ", member.title(),
                   " failed: ", json_text(message, "what", "")),
              SIGTERM, kGraceOfOthers, member.number);
}

void Coordinator::take_end(HostMember& member, const Json& message) {
  member.is_running = false;
  outcome_.note_end(json_flag(message, "finished", false), json_integer(message, "status", 0) == kRequeueStatus);
  if (roster_.running() == 0) decide_after_attempt();
}

void Coordinator::take_stop(HostMember& member, const Json& message) {
  if (phase_ == Phase::kOver) return;
  const int signal = static_cast<int>(json_integer(message, "signal", SIGTERM));
  const std::string why =
      text(member.is_own ? roster_.own().name : member.description.name, " received ", signal_name(signal));
  const std::vector<HostMember*> hosts = roster_.joined();
  const auto staying = std::count_if(hosts.begin(), hosts.end(), [](const HostMember* one) { return !one->leaves; });
  if (outcome_.is_stopped()) {
    // A batch system may tell all hosts to stop.
    if (json_flag(message, "at_once", false)) end_attempt(Reason::kStop, "", SIGKILL, Milliseconds(0), member.number);
  } else if (options_.is_elastic && !member.is_own && !member.leaves && staying > options_.min_hosts) {
    member.leaves = true;  // the others go on
    if (phase_ == Phase::kRunning)
      end_attempt(Reason::kMembership, why, SIGTERM, kGraceForCheckpoint, member.number);
    else if (phase_ == Phase::kGathering)
      member.link.send(message_of("over", {{"status", number(128 + signal)}}));
  } else {
    outcome_.note_stop(signal);
    if (phase_ == Phase::kGathering) return finish(128 + signal, why);
    end_attempt(Reason::kStop, why, signal, kGraceForCheckpoint, member.number);
  }
}

void Coordinator::lose(HostMember& member, const std::string& why) {
  member.link.close();
  member.has_joined = false;
  const bool was_running = std::exchange(member.is_running, false);
  if (phase_ == Phase::kOver) return;
  const std::string what = text(member.number < 0 ? member.description.name : member.title(), " is lost: ", why);
  if (was_running && phase_ == Phase::kRunning) {
    outcome_.note_failure(1, false);
    end_attempt(Reason::kFailure, what, SIGTERM, kGraceOfOthers, -1);
    return;
  }
  if (!member.leaves) std::fprintf(stderr, "accel launch: %s\n", what.c_str());
  if (was_running) outcome_.note_end(false, false);
  if (was_running && roster_.running() == 0) decide_after_attempt();
}

void Coordinator::look() {
  for (HostMember* const silent : roster_.beat())
    lose(*silent, text("no sign of life for ", options_.silence.count(), " ms"));
  if (phase_ == Phase::kEnding && phase_end_->passed())
    for (const auto& member : roster_.members())
      if (phase_ == Phase::kEnding && member->is_running) lose(*member, "it did not end its ranks in time");
  roster_.remove_closed();
  if (phase_ == Phase::kGathering) {
    try_to_begin();
    report_waiting();
  }
}

void Coordinator::try_to_begin() {
  if (phase_ != Phase::kGathering) return;
  std::vector<HostMember*> hosts = roster_.joined();
  const int count = static_cast<int>(hosts.size());
  if (!gathering_.is_complete(count, attempt_ == 0)) return;
  std::stable_sort(hosts.begin(), hosts.end(), [](const HostMember* one, const HostMember* other) {
    const auto position = [](const HostMember* member) {
      return member->is_own ? -1 : member->description.machine_rank.value_or(1 << 20);
    };
    return position(one) < position(other);
  });
  hosts.resize(static_cast<size_t>(std::min(count, options_.max_hosts)));
  begin(hosts);
}

void Coordinator::begin(const std::vector<HostMember*>& hosts) {
  int world_size = 0;
  for (const HostMember* const host : hosts) world_size += host->description.local_processes;
  if (attempt_ > 0)
    std::fprintf(stderr, "accel launch: attempt %d with %d ranks on %zu host%s\n", attempt_ + 1, world_size,
                 hosts.size(), hosts.size() == 1 ? "" : "s");
  int port = std::exchange(first_port_, 0);
  if (port == 0) port = port_.emplace().number();
  const std::string nonce = random_digits(16);
  phase_ = Phase::kRunning;
  for (const auto& member : roster_.members()) member->number = -1;
  int rank = 0, host_number = 0;
  for (HostMember* const host : hosts) {
    host->number = host_number++;
    host->is_running = true;
    host->link.send(message_of("run", {{"attempt", number(attempt_)},
                                       {"host_number", number(host->number)},
                                       {"num_hosts", number(static_cast<int64_t>(hosts.size()))},
                                       {"first_rank", number(rank)},
                                       {"world_size", number(world_size)},
                                       {"port", number(port)},
                                       {"nonce", Json(nonce)}}));
    rank += host->description.local_processes;
  }
}

void Coordinator::end_attempt(Reason reason, const std::string& why, int signal, Milliseconds grace, int cause) {
  phase_ = Phase::kEnding;
  outcome_.end_attempt(reason);
  phase_end_ = Deadline(grace + kLateEnd);
  for (const auto& member : roster_.members()) {
    if (!member->is_running) continue;
    member->link.send(message_of("end", {{"attempt", number(attempt_)},
                                         {"why", Json(why)},
                                         {"signal", number(signal)},
                                         {"grace_ms", number(grace.count())},
                                         {"is_cause", Json(member->number == cause)}}));
  }
  if (roster_.running() == 0) decide_after_attempt();
}

void Coordinator::decide_after_attempt() {
  if (phase_ == Phase::kOver) return;
  if (const std::optional<int> status = outcome_.status()) return finish(*status, "");
  ++attempt_;
  phase_ = Phase::kGathering;
  gathering_.restart();
  for (HostMember* const member : roster_.joined()) {
    if (!member->leaves) continue;
    member->link.send(message_of("over", {{"status", number(outcome_.asks_for_requeue() ? kRequeueStatus : 0)}}));
    member->dismiss();
  }
  outcome_.next_attempt();
  try_to_begin();
}

void Coordinator::finish(int status, const std::string& reason) {
  phase_ = Phase::kOver;
  phase_end_.emplace(HostMember::kFarewell);
  for (HostMember* const member : roster_.joined())
    member->link.send(message_of("over", {{"status", number(status)}, {"reason", Json(reason)}}));
}

void Coordinator::report_waiting() {
  if (phase_ != Phase::kGathering) return;
  const std::string state =
      text(roster_.joined().size(), " of ", options_.max_hosts, " hosts joined, ", roster_.missing());
  if (gathering_.has_failed()) {
    return finish(
        1, text(state, "; the time for joining of ", gathering_.time_for_joining().count() / 1000,
                " s is over: see whether their launchers run, and reach ", options_.coordinator, ":", roster_.port()));
  }
  if (!gathering_.take_report()) return;
  std::fprintf(stderr, "accel launch: %s\n", state.c_str());
  for (HostMember* const member : roster_.joined())
    if (!member->is_own) member->link.send(message_of("waiting", {{"state", Json(state)}}));
}

}  // namespace accel::launch
