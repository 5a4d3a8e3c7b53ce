// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the rendezvous. Every wait has a limit.
#pragma once

#include <string>
#include <tuple>

#include "base/deadline.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm {

struct Address {
  std::string host;
  int port = 0;
  bool operator<(const Address& other) const { return std::tie(host, port) < std::tie(other.host, other.port); }
};

// For a loopback `host` the socket listens on loopback only. Port 0 chooses a free one.
FileDescriptor listen_on(const std::string& host, int port);
int port_of(const FileDescriptor& listener);

struct Connection {
  FileDescriptor socket;  // closed if there is none
  bool refused = false;   // the host answers, but nothing listens there
};
Connection connect_to(const Address& address, Deadline::Milliseconds limit);

// A connection that is only watched and never accepted: it breaks when the listening process ends.
FileDescriptor begin_connection(const Address& address);
enum class LinkState {
  kOpen,     // or not made yet
  kRefused,  // nothing listens, or a firewall refuses
  kEnded,
  kUnknown,  // the network lost it, or has no route
};
LinkState link_state(const FileDescriptor& connection);

// The address of this host on the route to `other`; empty if there is no route.
std::string own_host_towards(const Address& other);

}  // namespace accel::comm
