// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/coordinator_link.hpp"

#include <cstdio>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "launch/hosts/host_socket.hpp"

namespace accel::launch {
namespace {

using Milliseconds = Deadline::Milliseconds;

constexpr Milliseconds kAgentLook(100), kAgentReport(5000);
constexpr Milliseconds kPause(100);         // between attempts to connect
constexpr Milliseconds kOneAttempt(5000);   // a host that is not there does not even refuse
constexpr Milliseconds kComingBack(30000);  // after a silence

}  // namespace

CoordinatorLink::CoordinatorLink(const HostOptions& options, HostDescription own)
    : options_(options),
      own_(std::move(own)),
      is_local_(false),
      deadline_(options.join_timeout),
      next_report_(kAgentReport) {
  connect();
}

CoordinatorLink::CoordinatorLink(const HostOptions& options, MessageLink made)
    : options_(options),
      is_local_(true),
      state_(State::kJoined),
      deadline_(options.join_timeout),
      next_report_(kAgentReport) {
  link_.emplace(std::move(made));
}

std::string CoordinatorLink::address() const { return text(options_.coordinator, ":", options_.coordinator_port); }

pollfd CoordinatorLink::polled() const {
  if (state_ == State::kConnecting) return {connecting_.number(), POLLOUT, 0};
  if (link_ && link_->is_open()) return link_->polled();
  return {-1, 0, 0};
}

std::optional<Milliseconds> CoordinatorLink::next_look() const {
  if (is_local_) return std::nullopt;
  return kAgentLook;
}

void CoordinatorLink::connect() {
  BegunConnection begun = begin_connection_to(options_.coordinator, options_.coordinator_port, options_.own_address);
  if (!begun.socket.is_open()) return retry(begun.problem);
  connecting_ = std::move(begun.socket);
  state_ = State::kConnecting;
  step_ = Deadline(kOneAttempt);
}

void CoordinatorLink::retry(const std::string& problem) {
  problem_ = problem;
  connecting_.reset();
  link_.reset();
  is_challenged_ = false;
  state_ = State::kPausing;
  step_ = Deadline(kPause);
}

void CoordinatorLink::fail_for_good(const std::string& why) {
  end_ = why;
  state_ = State::kOver;
  connecting_.reset();
  link_.reset();  // with what it has sent
}

void CoordinatorLink::join_again() {
  has_been_in_ = true;
  end_.clear();
  retry(problem_);
  deadline_ = Deadline(kComingBack);
}

void CoordinatorLink::transfer(short events) {
  if (state_ == State::kConnecting && events != 0) {
    const std::string problem = connection_problem(connecting_);
    if (problem.empty()) {
      link_.emplace(std::move(connecting_));
      connecting_.reset();
      state_ = State::kShaking;
      step_ = Deadline(kOneAttempt);
    } else if (has_been_in_) {
      fail_for_good(text("the coordinator at ", address(), " has ended (", problem, ")"));
    } else {
      retry(problem);
    }
  } else if (link_ && events != 0) {
    link_->transfer(events);
    heartbeat_.hear();
  }
  try {
    while (state_ == State::kShaking) {
      const std::optional<Json> message = link_->next();
      if (!message) break;
      shake_hands(*message);
    }
  } catch (const Error& error) {
    fail_for_good(text("what answers at ", address(), " is not the coordinator of this job: ", error.message(),
                       options_.secret.empty() ? "" : "; see whether it has the same secret"));
  }
  if (!is_local_) look();
}

void CoordinatorLink::shake_hands(const Json& message) {
  const std::string type = json_text(message, "type", "");
  if (type == "refused")
    return fail_for_good(
        text("the coordinator at ", address(), " has turned this host away: ", json_text(message, "reason", "")));
  if (type == "challenge" && !is_challenged_) {
    is_challenged_ = true;
    const int64_t protocol = json_integer(message, "protocol", 0);
    require(protocol == kProtocol, Status::kInvalidArgument, "its protocol is ", protocol, ", that of this accel is ",
            kProtocol);
    const bool has_secret = json_flag(message, "secret", false);
    require(has_secret || options_.secret.empty(), Status::kInvalidArgument, "it has no secret, and this host has one");
    const std::string nonce = random_digits(16);
    link_->send(message_of("answer", {{"protocol", Json::number(int64_t{kProtocol})},
                                      {"nonce", Json(nonce)},
                                      {"secret", Json(!options_.secret.empty())}}));
    if (has_secret && options_.secret.empty()) return;  // it says what it thinks of that
    if (has_secret) {
      const std::string both = json_text(message, "nonce", "") + ' ' + nonce;
      link_->protect(authentication_code(options_.secret, "agent " + both),
                     authentication_code(options_.secret, "coordinator " + both));
    }
    HostDescription own = own_;
    own.clock_ms = clock_ms();
    link_->send(to_json(own));
    return;
  }
  require(type == "welcome" && is_challenged_, Status::kInvalidArgument, "it says '", type, "'");
  state_ = State::kJoined;
  heartbeat_.restart();
}

void CoordinatorLink::look() {
  if (state_ == State::kJoined) {
    if (!link_->is_open()) {
      state_ = State::kOver;
      end_ = text("the coordinator at ", address(), " has ended, or the network broke");
    } else if (heartbeat_.is_silent(options_.silence)) {
      link_->close();
      state_ = State::kOver;
      end_ = text("the coordinator at ", address(), " is lost: no sign of life for ", options_.silence.count(), " ms");
    } else if (heartbeat_.take_beat()) {
      link_->send(message_of("beat"));
    }
    return;
  }
  if (state_ == State::kOver) return;
  if (deadline_.passed())
    return fail_for_good(text("this host cannot reach the coordinator at ", address(), " within ",
                              deadline_.total().count() / 1000, " s: ", problem_,
                              "; see whether the launcher of host 0 runs, and a firewall lets its port through"));
  if (state_ == State::kPausing && step_.passed()) connect();
  if (state_ == State::kConnecting && step_.passed()) retry("no answer");
  if (state_ == State::kShaking && (!link_->is_open() || step_.passed()))
    retry(link_->is_open() ? "it accepts connections and says nothing" : "it closed the connection");
  if (next_report_.passed()) {
    next_report_ = Deadline(kAgentReport);
    std::fprintf(stderr, "accel launch: no coordinator yet at %s: %s\n", address().c_str(), problem_.c_str());
  }
}

std::optional<Json> CoordinatorLink::next() {
  if (!link_ || (state_ != State::kJoined && state_ != State::kOver)) return std::nullopt;  // or what it said last
  try {
    return link_->next();
  } catch (const Error& error) {
    fail_for_good(text("the coordinator at ", address(), " sends what cannot be: ", error.message()));
    return std::nullopt;
  }
}

void CoordinatorLink::send(const Json& message) {
  if (is_joined()) link_->send(message);
}

}  // namespace accel::launch
