// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_roster.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/authentication_code.hpp"
#include "base/error.hpp"

namespace accel::launch {
namespace {

constexpr size_t kMostStrangers = 64;
constexpr int64_t kClockDifferenceMs = 2000;

}  // namespace

HostRoster::HostRoster(const HostOptions& options, HostDescription own, Listener listener)
    : options_(options), own_(std::move(own)), listener_(std::move(listener)) {
  LinkPair pair = make_link_pair();
  own_link_ = std::make_unique<MessageLink>(std::move(pair.other));
  auto member = std::make_unique<HostMember>(std::move(pair.one));
  member->is_own = member->has_answered = member->has_joined = true;
  member->description = own_;
  members_.push_back(std::move(member));
}

void HostRoster::add_polled(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.socket.number(), POLLIN, 0});
  for (const auto& member : members_) polled.push_back(member->link.polled());
}

void HostRoster::transfer(const pollfd* polled, const std::function<void(HostMember&)>& receive) {
  const bool has_newcomers = polled++->revents != 0;
  const size_t known = members_.size();
  for (size_t i = 0; i < known; ++i) {
    if (polled[i].revents == 0) continue;
    members_[i]->link.transfer(polled[i].revents);
    receive(*members_[i]);
  }
  if (has_newcomers) accept_all();
}

void HostRoster::accept_all() {
  std::string from;
  for (size_t count = 0; count < kMostStrangers; ++count) {
    FileDescriptor socket = accept_from(listener_.socket, from);
    if (!socket.is_open()) return;
    const auto is_stranger = [](const auto& member) { return !member->has_joined; };
    if (static_cast<size_t>(std::count_if(members_.begin(), members_.end(), is_stranger)) >= kMostStrangers)
      members_.erase(std::find_if(members_.begin(), members_.end(), is_stranger));
    auto member = std::make_unique<HostMember>(MessageLink(std::move(socket)));
    member->from = from;
    member->link.send(message_of("challenge", {{"protocol", Json::number(int64_t{kProtocol})},
                                               {"nonce", Json(member->nonce)},
                                               {"secret", Json(!options_.secret.empty())}}));
    members_.push_back(std::move(member));
  }
}

// The other side's first line has its nonce; from then on, with a secret, both prove in every line that they know it.
bool HostRoster::shake_hands(HostMember& member, const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "hello" && member.has_answered) return true;
  require(type == "answer" && !member.has_answered, Status::kInvalidArgument,
          "it does not speak the protocol of accel launch");
  const int64_t protocol = json_integer(message, "protocol", 0);
  if (protocol != kProtocol) {
    refuse(member, text("its protocol is ", protocol, "; expected ", kProtocol, ", that of accel ", own_.version));
    return false;
  }
  if (json_flag(message, "secret", false) != !options_.secret.empty()) {
    refuse(member, options_.secret.empty() ? "it has a secret, and this job has none"
                                           : "this job has a secret; give its launcher --secret-file, too");
    return false;
  }
  const std::string nonce = json_text(message, "nonce", "");
  require(nonce.size() >= 16, Status::kInvalidArgument, "its nonce is too short");
  member.has_answered = true;
  if (options_.secret.empty()) return false;
  const std::string both = member.nonce + ' ' + nonce;
  member.link.protect(authentication_code(options_.secret, "coordinator " + both),
                      authentication_code(options_.secret, "agent " + both));
  return false;
}

std::string HostRoster::reason_for(const HostMember& member, const std::string& error) const {
  return member.has_answered && !options_.secret.empty()
             ? "its secret is not that of this job; give both the same --secret-file"
             : error;
}

void HostRoster::refuse(HostMember& member, const std::string& reason) {
  std::fprintf(stderr, "accel launch: turned away %s: %s\n",
               member.description.name.empty() ? member.from.c_str() : member.description.name.c_str(), reason.c_str());
  member.link.protect("", "");
  member.link.send(message_of("refused", {{"reason", Json(reason)}}));
  member.is_refused = true;
  member.handshake = Deadline(HostMember::kFarewell);  // until it has read why
}

bool HostRoster::admit(HostMember& member, const Json& hello) {
  member.description = host_description(hello);
  const HostDescription& host = member.description;
  std::string why_not = mismatch(own_, host);
  if (why_not.empty() && !options_.is_elastic) {
    require(host.machine_rank.has_value(), Status::kInvalidArgument, "it has no machine rank");
    if (*host.machine_rank >= options_.max_hosts)
      why_not = text("its machine rank is ", *host.machine_rank, "; expected less than the ", options_.max_hosts,
                     " hosts of this job");
    for (const HostMember* const other : joined())
      if (why_not.empty() && other->description.machine_rank == host.machine_rank)
        why_not = text("machine rank ", *host.machine_rank, " is taken by ", other->description.name,
                       "; give each host one of its own");
  }
  if (!why_not.empty()) refuse(member, why_not);
  return why_not.empty();
}

void HostRoster::welcome(HostMember& member) {
  const HostDescription& host = member.description;
  const int64_t difference = clock_ms() - host.clock_ms;
  if (std::abs(difference) > kClockDifferenceMs)
    std::fprintf(stderr, "accel launch: the clock of %s differs by %.1f s from that of %s\n", host.name.c_str(),
                 static_cast<double>(difference) / 1000, own_.name.c_str());
  member.has_joined = true;
  member.link.send(message_of("welcome"));
}

std::vector<HostMember*> HostRoster::joined() const {
  std::vector<HostMember*> result;
  for (const auto& member : members_)
    if (member->is_there()) result.push_back(member.get());
  return result;
}

int HostRoster::running() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [](const auto& member) { return member->is_running; }));
}

std::string HostRoster::missing() const {
  if (options_.is_elastic) return text("at least ", options_.min_hosts, " are needed");
  std::string numbers;
  int count = 0;
  const std::vector<HostMember*> hosts = joined();
  for (int rank = 0; rank < options_.max_hosts; ++rank) {
    const bool is_there = std::any_of(hosts.begin(), hosts.end(), [rank](const HostMember* host) {
      return host->is_own ? rank == 0 : host->description.machine_rank == rank;
    });
    if (is_there) continue;
    numbers += text(numbers.empty() ? "" : ", ", rank);
    ++count;
  }
  return text("missing host", count == 1 ? " " : "s ", numbers);
}

std::vector<HostMember*> HostRoster::beat() {
  std::vector<HostMember*> silent;
  for (const auto& member : members_) {
    if (!member->has_joined || member->is_own) continue;
    if (member->heartbeat.is_silent(options_.silence))
      silent.push_back(member.get());
    else if (member->heartbeat.take_beat())
      member->link.send(message_of("beat"));
  }
  return silent;
}

void HostRoster::remove_closed() {
  const auto is_gone = [](const std::unique_ptr<HostMember>& member) {
    return !member->link.is_open() || (!member->has_joined && member->handshake.passed());
  };
  members_.erase(std::remove_if(members_.begin(), members_.end(), is_gone), members_.end());
}

}  // namespace accel::launch
