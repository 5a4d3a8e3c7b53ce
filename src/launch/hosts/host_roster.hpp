// SPDX-License-Identifier: Apache-2.0
// The roster of a job: the launchers that have a link to the coordinator. Accepts connections, shakes hands, turns away
// who does not belong to the job, and notices who is silent.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/hosts/host_description.hpp"
#include "launch/hosts/host_member.hpp"
#include "launch/hosts/host_socket.hpp"
#include "launch/hosts/message_link.hpp"
#include "launch/plan/host_options.hpp"

namespace accel::launch {

class HostRoster {
 public:
  // A closed `listener` means that this is the only host, which has joined already.
  HostRoster(const HostOptions& options, HostDescription own, Listener listener);

  // The link of this host's own agent, once.
  MessageLink take_own_link() { return std::move(*std::exchange(own_link_, nullptr)); }
  const HostDescription& own() const { return own_; }
  bool is_listening() const { return listener_.socket.is_open(); }
  int port() const { return listener_.port; }

  void add_polled(std::vector<pollfd>& polled) const;
  // Handles the events that poll() found, in the order of the last add_polled(); receive() is called for each member
  // with any.
  void transfer(const pollfd* polled, const std::function<void(HostMember&)>& receive);

  // Takes a message of a stranger. True: it has proved what it must know and wants to join; see admit().
  bool shake_hands(HostMember& member, const Json& message);
  // Takes a host's description. False: it was refused.
  bool admit(HostMember& member, const Json& hello);
  void welcome(HostMember& member);
  void refuse(HostMember& member, const std::string& reason);
  // The reason for refusing a stranger whose message was wrong.
  std::string reason_for(const HostMember& member, const std::string& error) const;

  const std::vector<std::unique_ptr<HostMember>>& members() const { return members_; }
  // The hosts of the job.
  std::vector<HostMember*> joined() const;
  int running() const;
  // "missing host 3", or how many may come.
  std::string missing() const;

  // Sends this host's signs of life. Returns the hosts that send none.
  std::vector<HostMember*> beat();
  void remove_closed();

 private:
  void accept_all();

  const HostOptions& options_;
  const HostDescription own_;
  Listener listener_;
  std::vector<std::unique_ptr<HostMember>> members_;
  std::unique_ptr<MessageLink> own_link_;
};

}  // namespace accel::launch
