// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "os/socket_address.hpp"

namespace accel::comm {
namespace {

constexpr int kBacklog = 1024;

// Closed if this host does not support the family of the address.
FileDescriptor open_socket(const SocketAddress& address, int kind) {
  FileDescriptor opened(socket(address.family(), kind | SOCK_CLOEXEC, 0));
  require(opened.is_open() || errno == EAFNOSUPPORT, Status::kIo, "no socket: ", std::strerror(errno),
          "; see the limit of open files (ulimit -n)");
  return opened;
}

// If nothing listens at a local port, the kernel may choose it as the source port, and the socket connects to itself.
bool is_connected_to_itself(const FileDescriptor& connection) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  const SocketAddress own = own_address(connection.number());
  return getpeername(connection.number(), reinterpret_cast<sockaddr*>(&other), &length) == 0 &&
         own.length() == length && std::memcmp(own.get(), &other, length) == 0;
}

// The addresses to listen at, the best first: that of the host, so that a socket is open to one network only. All of
// this host where others may mean another one: a name with several addresses, a name that means this host alone, as
// distributions write it into /etc/hosts, and an address that this host does not have, of a gateway or a service.
std::vector<SocketAddress> listening_addresses(const std::string& host, int port) {
  std::vector<SocketAddress> addresses = resolve(loopback_address(host), port).addresses;
  if (is_loopback_host(host)) return addresses;
  if (addresses.size() != 1 || addresses[0].is_loopback()) addresses.clear();
  const int family = addresses.empty() ? AF_INET6 : addresses[0].family();
  addresses.push_back(SocketAddress::any(family, port));
  if (family == AF_INET6) addresses.push_back(SocketAddress::any(AF_INET, port));  // where there is no IPv6
  return addresses;
}

int error_of(const FileDescriptor& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

bool is_made(const FileDescriptor& connection) {
  if (is_connected_to_itself(connection)) return false;
  fcntl(connection.number(), F_SETFL, fcntl(connection.number(), F_GETFL) & ~O_NONBLOCK);
  return true;
}

}  // namespace

FileDescriptor listen_on(const std::string& host, int port) {
  const int yes = 1;
  int error = EADDRNOTAVAIL;
  for (const SocketAddress& address : listening_addresses(host, port)) {
    FileDescriptor listener = open_socket(address, SOCK_STREAM);
    if (!listener.is_open()) continue;
    setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (address.family() == AF_INET6) accept_both_families(listener.number());
    if (bind(listener.number(), address.get(), address.length()) == 0 && listen(listener.number(), kBacklog) == 0)
      return listener;
    error = errno;
    if (error != EADDRNOTAVAIL) break;
  }
  fail(Status::kIo, "port ", port, " of ", host, " cannot be used: ", std::strerror(error),
       "; set MASTER_PORT to a free port");
}

int port_of(const FileDescriptor& listener) { return own_address(listener.number()).port(); }

// A name may have addresses that cannot be reached from here: all are tried at once.
Connection connect_to(const Address& address, Deadline::Milliseconds limit) {
  const Deadline deadline(std::max(limit, Deadline::Milliseconds(1)));
  std::vector<FileDescriptor> begun;
  bool refused = false;
  for (const SocketAddress& one : resolve(address.host, address.port).addresses) {
    FileDescriptor attempt = open_socket(one, SOCK_STREAM | SOCK_NONBLOCK);
    if (!attempt.is_open()) continue;
    if (connect(attempt.number(), one.get(), one.length()) == 0) {
      if (is_made(attempt)) return {std::move(attempt), false};
      refused = true;
    } else if (errno == EINPROGRESS) {
      begun.push_back(std::move(attempt));
    } else {
      refused = refused || errno == ECONNREFUSED;
    }
  }
  while (!begun.empty() && !deadline.passed()) {
    std::vector<pollfd> states;
    for (const FileDescriptor& attempt : begun) states.push_back({attempt.number(), POLLOUT, 0});
    const auto left = deadline.left() + Deadline::Milliseconds(1);
    if (poll(states.data(), states.size(), static_cast<int>(left.count())) <= 0) continue;
    for (size_t i = states.size(); i-- > 0;) {
      if (states[i].revents == 0) continue;
      const int error = error_of(begun[i]);
      if (error == 0 && is_made(begun[i])) return {std::move(begun[i]), false};
      refused = refused || error == 0 || error == ECONNREFUSED;
      begun.erase(begun.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return {FileDescriptor(), refused && begun.empty()};
}

FileDescriptor begin_connection(const Address& address) {
  const auto addresses = resolve(address.host, address.port).addresses;
  if (addresses.empty()) return {};
  FileDescriptor connection = open_socket(addresses[0], SOCK_STREAM | SOCK_NONBLOCK);
  // link_state() reports the result.
  if (connection.is_open()) static_cast<void>(connect(connection.number(), addresses[0].get(), addresses[0].length()));
  return connection;
}

LinkState link_state(const FileDescriptor& connection) {
  pollfd state{connection.number(), POLLIN, 0};
  if (poll(&state, 1, 0) <= 0) return LinkState::kOpen;
  const int error = error_of(connection);
  if (error == ECONNREFUSED) return LinkState::kRefused;
  return error == 0 || error == ECONNRESET || error == EPIPE ? LinkState::kEnded : LinkState::kUnknown;
}

std::string own_host_towards(const Address& other) {
  for (const SocketAddress& address : resolve(other.host, other.port, SOCK_DGRAM).addresses) {
    const FileDescriptor way = open_socket(address, SOCK_DGRAM);  // nothing is sent
    if (way.is_open() && connect(way.number(), address.get(), address.length()) == 0)
      return own_address(way.number()).host();
  }
  return {};
}

}  // namespace accel::comm
