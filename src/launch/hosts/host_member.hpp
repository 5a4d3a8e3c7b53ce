// SPDX-License-Identifier: Apache-2.0
// A launcher that has a link to the coordinator: a stranger until it has joined, then a host of the job.
#pragma once

#include <string>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "launch/hosts/heartbeat.hpp"
#include "launch/hosts/host_description.hpp"
#include "launch/hosts/message_link.hpp"

namespace accel::launch {

struct HostMember {
  static constexpr Deadline::Milliseconds kHandshake{5000};  // for a stranger, who may say nothing
  static constexpr Deadline::Milliseconds kFarewell{2000};

  explicit HostMember(MessageLink made) : link(std::move(made)) {}

  std::string title() const { return text("host ", number, " (", description.name, ")"); }
  bool is_there() const { return has_joined && link.is_open(); }
  // It may still read the last message.
  void dismiss() {
    has_joined = false;
    handshake = Deadline(kFarewell);
  }

  MessageLink link;
  std::string from;
  std::string nonce = random_digits(16);
  bool has_answered = false;  // with its nonce
  bool has_joined = false;
  bool is_refused = false;
  bool is_own = false;
  HostDescription description;
  Deadline handshake{kHandshake};
  Heartbeat heartbeat;
  int number = -1;  // of the host, in this attempt
  bool is_running = false;
  bool leaves = false;
};

}  // namespace accel::launch
