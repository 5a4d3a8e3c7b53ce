// The TCP connections of the ranks' meetings. Nothing here waits longer than it is told.
#pragma once

#include <string>
#include <tuple>

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"

namespace accel::comm {

struct Address {
  std::string host;
  int port = 0;
  bool operator<(const Address& other) const { return std::tie(host, port) < std::tie(other.host, other.port); }
};

// "localhost" and what else stays in this host.
bool is_loopback(const std::string& host);

// A store speaks plain text and asks for no password: for `host` on loopback it can only be reached from here. Port 0
// is a free one.
FileDescriptor listen_on(const std::string& host, int port);
int port_of(const FileDescriptor& listener);

struct Connection {
  FileDescriptor socket;  // closed when there is none
  bool refused = false;   // there is a host, and nobody on it who listens
};
Connection connect_to(const Address& address, Deadline::Milliseconds limit);

// One that is only watched, and that nobody needs to accept: it tells when the process ends that listens there.
FileDescriptor begin_connection(const Address& address);
enum class LinkState {
  kOpen,     // or not made yet
  kRefused,  // nobody listens, or a firewall says so
  kEnded,
  kUnknown,  // the network lost it, or never had a way
};
LinkState link_state(const FileDescriptor& connection);

// Of this host, as those see it who are on the way to `other`; empty when there is no way.
std::string own_host_towards(const Address& other);

}  // namespace accel::comm
