#include "launch/hosts/coordinator.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "launch/hosts/shared_secret.hpp"
#include "launch/job.hpp"

namespace accel::launch {
namespace {

using Milliseconds = Deadline::Milliseconds;
using Clock = Deadline::Clock;

constexpr Milliseconds kLook(200), kBeat(1000), kReport(5000);
constexpr Milliseconds kHandshake(5000);  // for a stranger, who may say nothing
constexpr size_t kMostStrangers = 64;
constexpr Milliseconds kGraceOfOthers(1500), kGraceForCheckpoint(30000);
constexpr Milliseconds kLateEnd(5000);  // more than the grace
constexpr Milliseconds kFarewell(2000);
constexpr int64_t kClockDifferenceMs = 2000;

Json order(const char* type, Json::Members members = {}) {
  members.insert(members.begin(), {"type", Json(type)});
  return Json(std::move(members));
}

Json number(int64_t value) { return Json::number(value); }

}  // namespace

struct Coordinator::Member {
  explicit Member(MessageLink made) : link(std::move(made)) {}

  std::string title() const { return text("host ", number, " (", description.name, ")"); }

  MessageLink link;
  std::string from;
  std::string nonce = random_digits(16);
  bool has_answered = false;  // with its nonce
  bool has_joined = false;
  bool is_refused = false;
  bool is_own = false;
  HostDescription description;
  Deadline handshake{kHandshake};
  Clock::time_point last_heard = Clock::now(), last_beat = Clock::now();
  int number = -1;  // of the host, in this attempt
  bool is_running = false;
  bool leaves = false;
};

Coordinator::Coordinator(const HostOptions& options, HostDescription own, Listener listener, int first_port)
    : options_(options),
      own_(std::move(own)),
      listener_(std::move(listener)),
      first_port_(first_port),
      join_deadline_(options.join_timeout),
      next_report_(kReport) {
  LinkPair pair = make_link_pair();
  own_link_ = std::make_unique<MessageLink>(std::move(pair.other));
  auto member = std::make_unique<Member>(std::move(pair.one));
  member->is_own = member->has_answered = member->has_joined = true;
  member->description = own_;
  members_.push_back(std::move(member));
  try_to_begin();
}

Coordinator::~Coordinator() = default;

MessageLink Coordinator::take_own_link() { return std::move(*std::exchange(own_link_, nullptr)); }

void Coordinator::add_polled(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.socket.number(), POLLIN, 0});
  for (const auto& member : members_) polled.push_back(member->link.polled());
}

void Coordinator::transfer(const pollfd* polled) {
  const bool has_newcomers = polled++->revents != 0;
  const size_t known = members_.size();
  for (size_t i = 0; i < known; ++i) {
    if (polled[i].revents == 0) continue;
    members_[i]->link.transfer(polled[i].revents);
    receive(*members_[i]);
  }
  if (has_newcomers) accept_all();
  look();
}

std::optional<Milliseconds> Coordinator::next_look() const {
  if (!listener_.socket.is_open() && phase_ != Phase::kEnding) return std::nullopt;
  return kLook;
}

bool Coordinator::is_done() const {
  return farewell_ && (farewell_->passed() || std::all_of(members_.begin(), members_.end(), [](const auto& member) {
                         return member->is_own || !member->link.is_open();
                       }));
}

void Coordinator::give_up(const std::string& reason) {
  if (phase_ == Phase::kGathering) finish(1, reason);
}

void Coordinator::accept_all() {
  std::string from;
  for (size_t count = 0; count < kMostStrangers; ++count) {
    FileDescriptor socket = accept_from(listener_.socket, from);
    if (!socket.is_open()) return;
    const auto is_stranger = [](const auto& member) { return !member->has_joined; };
    if (static_cast<size_t>(std::count_if(members_.begin(), members_.end(), is_stranger)) >= kMostStrangers)
      members_.erase(std::find_if(members_.begin(), members_.end(), is_stranger));
    auto member = std::make_unique<Member>(MessageLink(std::move(socket)));
    member->from = from;
    member->link.send(order(
        "challenge",
        {{"protocol", number(kProtocol)}, {"nonce", Json(member->nonce)}, {"secret", Json(!options_.secret.empty())}}));
    members_.push_back(std::move(member));
  }
}

void Coordinator::receive(Member& member) {
  try {
    while (!member.is_refused) {
      const std::optional<Json> message = member.link.next();
      if (!message) break;
      member.last_heard = Clock::now();
      if (member.has_joined)
        handle(member, *message);
      else
        shake_hands(member, *message);
    }
  } catch (const Error& error) {
    if (member.has_joined) {
      lose(member, error.message());
    } else {
      refuse(member, member.has_answered && !options_.secret.empty()
                         ? "its secret is not that of this job; give both the same --secret-file"
                         : error.message());
    }
  }
  if (!member.link.is_open() && member.has_joined) lose(member, "its launcher has ended, or the network broke");
}

// The other side's first line has its nonce; from then on, with a secret, both prove in every line that they know it.
void Coordinator::shake_hands(Member& member, const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "hello" && member.has_answered) return join(member, message);
  require(type == "answer" && !member.has_answered, Status::kInvalidArgument,
          "it does not speak the protocol of accel launch");
  const int64_t protocol = json_integer(message, "protocol", 0);
  if (protocol != kProtocol)
    return refuse(member,
                  text("its protocol is ", protocol, "; expected ", kProtocol, ", that of accel ", own_.version));
  if (json_flag(message, "secret", false) != !options_.secret.empty())
    return refuse(member, options_.secret.empty() ? "it has a secret, and this job has none"
                                                  : "this job has a secret; give its launcher --secret-file, too");
  const std::string nonce = json_text(message, "nonce", "");
  require(nonce.size() >= 16, Status::kInvalidArgument, "its nonce is too short");
  member.has_answered = true;
  if (options_.secret.empty()) return;
  const std::string both = member.nonce + ' ' + nonce;
  member.link.protect(authentication_code(options_.secret, "coordinator " + both),
                      authentication_code(options_.secret, "agent " + both));
}

void Coordinator::refuse(Member& member, const std::string& reason) {
  std::fprintf(stderr, "accel launch: turned away %s: %s\n",
               member.description.name.empty() ? member.from.c_str() : member.description.name.c_str(), reason.c_str());
  member.link.protect("", "");
  member.link.send(order("refused", {{"reason", Json(reason)}}));
  member.is_refused = true;
  member.handshake = Deadline(kFarewell);  // until it has read why
}

void Coordinator::join(Member& member, const Json& hello) {
  member.description = host_description(hello);
  const HostDescription& host = member.description;
  const std::string why_not = mismatch(own_, host);
  if (!why_not.empty()) return refuse(member, why_not);
  if (!options_.is_elastic) {
    require(host.machine_rank.has_value(), Status::kInvalidArgument, "it has no machine rank");
    if (*host.machine_rank >= options_.max_hosts)
      return refuse(member, text("its machine rank is ", *host.machine_rank, "; expected less than the ",
                                 options_.max_hosts, " hosts of this job"));
    for (const Member* const other : joined())
      if (other->description.machine_rank == host.machine_rank)
        return refuse(member, text("machine rank ", *host.machine_rank, " is taken by ", other->description.name,
                                   "; give each host one of its own"));
  }
  if (phase_ == Phase::kOver) return refuse(member, "the job is over");
  const int64_t difference = clock_ms() - host.clock_ms;
  if (std::abs(difference) > kClockDifferenceMs)
    std::fprintf(stderr, "accel launch: the clock of %s differs by %.1f s from that of %s\n", host.name.c_str(),
                 static_cast<double>(difference) / 1000, own_.name.c_str());
  member.has_joined = true;
  member.link.send(order("welcome"));
  if (phase_ == Phase::kGathering) return try_to_begin();
  const auto running = std::count_if(members_.begin(), members_.end(), [](const auto& one) { return one->is_running; });
  if (phase_ == Phase::kRunning && options_.is_elastic && running < options_.max_hosts)
    end_attempt(EndReason::kMembership, text(host.name, " has joined: the job goes on with more hosts"), SIGTERM,
                kGraceForCheckpoint, -1);
}

void Coordinator::handle(Member& member, const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "beat") return;
  if (type == "stop") return take_stop(member, message);
  if (json_integer(message, "attempt", -1) != attempt_ || !member.is_running) return;
  if (type == "failed") take_failure(member, message);
  if (type == "ended") take_end(member, message);
}

void Coordinator::take_failure(Member& member, const Json& message) {
  if (phase_ != Phase::kRunning) return;
  failed_status_ = static_cast<int>(json_integer(message, "status", 1));
  is_hopeless_ = json_flag(message, "hopeless", false);
  end_attempt(EndReason::kFailure,
              text("rank ", json_integer(message, "rank", 0), " on ", member.title(),
                   " failed: ", json_text(message, "what", "")),
              SIGTERM, kGraceOfOthers, member.number);
}

void Coordinator::take_end(Member& member, const Json& message) {
  member.is_running = false;
  all_finished_ = all_finished_ && json_flag(message, "finished", false);
  asks_for_requeue_ = asks_for_requeue_ || json_integer(message, "status", 0) == kRequeueStatus;
  if (!is_anybody_running()) decide_after_attempt();
}

void Coordinator::take_stop(Member& member, const Json& message) {
  if (phase_ == Phase::kOver) return;
  const int signal = static_cast<int>(json_integer(message, "signal", SIGTERM));
  const std::string why =
      text(member.is_own ? own_.name : member.description.name, " was told to stop by ", signal_name(signal));
  const std::vector<Member*> hosts = joined();
  const auto staying = std::count_if(hosts.begin(), hosts.end(), [](const Member* one) { return !one->leaves; });
  if (stop_signal_) {
    // A batch system may tell all hosts to stop.
    if (json_flag(message, "at_once", false))
      end_attempt(EndReason::kStop, "", SIGKILL, Milliseconds(0), member.number);
  } else if (options_.is_elastic && !member.is_own && !member.leaves && staying > options_.min_hosts) {
    member.leaves = true;  // the others go on
    if (phase_ == Phase::kRunning)
      end_attempt(EndReason::kMembership, why, SIGTERM, kGraceForCheckpoint, member.number);
    else if (phase_ == Phase::kGathering)
      member.link.send(order("over", {{"status", number(128 + signal)}}));
  } else {
    stop_signal_ = signal;
    if (phase_ == Phase::kGathering) return finish(128 + signal, why);
    end_attempt(EndReason::kStop, why, signal, kGraceForCheckpoint, member.number);
  }
}

void Coordinator::lose(Member& member, const std::string& why) {
  member.link.close();
  member.has_joined = false;
  const bool was_running = std::exchange(member.is_running, false);
  if (phase_ == Phase::kOver) return;
  const std::string what = text(member.number < 0 ? member.description.name : member.title(), " is lost: ", why);
  if (was_running && phase_ == Phase::kRunning) {
    failed_status_ = 1;
    end_attempt(EndReason::kFailure, what, SIGTERM, kGraceOfOthers, -1);
    return;
  }
  if (!member.leaves) std::fprintf(stderr, "accel launch: %s\n", what.c_str());
  if (was_running) all_finished_ = false;
  if (was_running && !is_anybody_running()) decide_after_attempt();
}

void Coordinator::remove_closed() {
  const auto is_gone = [](const std::unique_ptr<Member>& member) {
    return !member->link.is_open() || (!member->has_joined && member->handshake.passed());
  };
  members_.erase(std::remove_if(members_.begin(), members_.end(), is_gone), members_.end());
}

void Coordinator::look() {
  const auto now = Clock::now();
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = *members_[i];
    if (!member.has_joined || member.is_own) continue;
    if (now - member.last_heard > options_.silence) {
      lose(member, text("no sign of life for ", options_.silence.count(), " ms"));
    } else if (now - member.last_beat > kBeat) {
      member.last_beat = now;
      member.link.send(order("beat"));
    }
  }
  if (phase_ == Phase::kEnding && ending_->passed()) {
    for (size_t i = 0; i < members_.size() && phase_ == Phase::kEnding; ++i)
      if (members_[i]->is_running) lose(*members_[i], "it did not end its ranks in time");
  }
  remove_closed();
  if (phase_ == Phase::kGathering) {
    try_to_begin();
    report_waiting();
  }
}

std::vector<Coordinator::Member*> Coordinator::joined() const {
  std::vector<Member*> result;
  for (const auto& member : members_)
    if (member->has_joined && member->link.is_open()) result.push_back(member.get());
  return result;
}

bool Coordinator::is_anybody_running() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->is_running; });
}

void Coordinator::gather() {
  phase_ = Phase::kGathering;
  end_reason_ = EndReason::kNone;
  ending_.reset();
  join_deadline_ = Deadline(options_.join_timeout);
  next_report_ = Deadline(kReport);
  for (Member* const member : joined()) {
    if (!member->leaves) continue;
    member->link.send(order("over", {{"status", number(asks_for_requeue_ ? kRequeueStatus : 0)}}));
    member->has_joined = false;
    member->handshake = Deadline(kFarewell);
  }
  asks_for_requeue_ = false;
  try_to_begin();
}

void Coordinator::try_to_begin() {
  if (phase_ != Phase::kGathering) return;
  std::vector<Member*> hosts = joined();
  const int count = static_cast<int>(hosts.size());
  if (count < options_.min_hosts) {
    last_call_.reset();
    return;
  }
  if (count < options_.max_hosts) {
    if (!options_.is_elastic) return;
    // Later attempts go on with those who are there: others may come at any time.
    if (!last_call_) last_call_.emplace(attempt_ == 0 ? options_.last_call : Milliseconds(0));
    if (!last_call_->passed()) return;
  }
  std::stable_sort(hosts.begin(), hosts.end(), [](const Member* one, const Member* other) {
    const auto place = [](const Member* member) {
      return member->is_own ? -1 : member->description.machine_rank.value_or(1 << 20);
    };
    return place(one) < place(other);
  });
  hosts.resize(static_cast<size_t>(std::min(count, options_.max_hosts)));
  begin(hosts);
}

void Coordinator::begin(const std::vector<Member*>& hosts) {
  int world_size = 0;
  for (const Member* const host : hosts) world_size += host->description.local_processes;
  if (attempt_ > 0)
    std::fprintf(stderr, "accel launch: attempt %d with %d ranks on %zu host%s\n", attempt_ + 1, world_size,
                 hosts.size(), hosts.size() == 1 ? "" : "s");
  int port = std::exchange(first_port_, 0);
  if (port == 0) port = port_.emplace().number();
  const std::string nonce = random_digits(16);
  phase_ = Phase::kRunning;
  all_finished_ = true;
  last_call_.reset();
  for (const auto& member : members_) member->number = -1;
  int rank = 0, host_number = 0;
  for (Member* const host : hosts) {
    host->number = host_number++;
    host->is_running = true;
    host->link.send(order("run", {{"attempt", number(attempt_)},
                                  {"host_number", number(host->number)},
                                  {"num_hosts", number(static_cast<int64_t>(hosts.size()))},
                                  {"first_rank", number(rank)},
                                  {"world_size", number(world_size)},
                                  {"port", number(port)},
                                  {"nonce", Json(nonce)}}));
    rank += host->description.local_processes;
  }
}

void Coordinator::end_attempt(EndReason reason, const std::string& why, int signal, Milliseconds grace, int cause) {
  phase_ = Phase::kEnding;
  end_reason_ = std::max(end_reason_, reason);
  ending_ = Deadline(grace + kLateEnd);
  for (const auto& member : members_) {
    if (!member->is_running) continue;
    member->link.send(order("end", {{"attempt", number(attempt_)},
                                    {"why", Json(why)},
                                    {"signal", number(signal)},
                                    {"grace_ms", number(grace.count())},
                                    {"is_cause", Json(member->number == cause)}}));
  }
  if (!is_anybody_running()) decide_after_attempt();
}

void Coordinator::decide_after_attempt() {
  if (phase_ == Phase::kOver) return;
  if (end_reason_ == EndReason::kStop) return finish(asks_for_requeue_ ? kRequeueStatus : 128 + *stop_signal_, "");
  if (end_reason_ == EndReason::kFailure) {
    if (restarts_ >= options_.max_restarts || is_hopeless_) return finish(failed_status_, "");
    ++restarts_;
    std::fprintf(stderr, "accel launch: restart %d of %d\n", restarts_, options_.max_restarts);
  } else if (all_finished_) {
    return finish(0, "");
  } else if (end_reason_ == EndReason::kNone) {
    return finish(asks_for_requeue_ ? kRequeueStatus : 1, "");
  }
  ++attempt_;
  gather();
}

void Coordinator::finish(int status, const std::string& reason) {
  phase_ = Phase::kOver;
  farewell_.emplace(kFarewell);
  for (Member* const member : joined())
    member->link.send(order("over", {{"status", number(status)}, {"reason", Json(reason)}}));
}

// "host 3", or how many may come.
std::string Coordinator::missing() const {
  if (options_.is_elastic) return text("at least ", options_.min_hosts, " are needed");
  std::string numbers;
  int count = 0;
  const std::vector<Member*> hosts = joined();
  for (int rank = 0; rank < options_.max_hosts; ++rank) {
    const bool is_there = std::any_of(hosts.begin(), hosts.end(), [rank](const Member* host) {
      return host->is_own ? rank == 0 : host->description.machine_rank == rank;
    });
    if (is_there) continue;
    numbers += text(numbers.empty() ? "" : ", ", rank);
    ++count;
  }
  return text("missing host", count == 1 ? " " : "s ", numbers);
}

void Coordinator::report_waiting() {
  if (phase_ != Phase::kGathering) return;
  const std::string state = text(joined().size(), " of ", options_.max_hosts, " hosts joined, ", missing());
  if (join_deadline_.passed()) {
    return finish(
        1, text(state, "; the time for joining of ", join_deadline_.total().count() / 1000,
                " s is over: see whether their launchers run, and reach ", options_.coordinator, ":", listener_.port));
  }
  if (!next_report_.passed()) return;
  next_report_ = Deadline(kReport);
  std::fprintf(stderr, "accel launch: %s\n", state.c_str());
  for (Member* const member : joined())
    if (!member->is_own) member->link.send(order("waiting", {{"state", Json(state)}}));
}

}  // namespace accel::launch
