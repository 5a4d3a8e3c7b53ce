// SPDX-License-Identifier: Apache-2.0
// Addresses of TCP and UDP sockets, of IPv4 and IPv6.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace accel {

class SocketAddress {
 public:
  // All addresses of this host. AF_INET6 also means those of IPv4, see accept_both_families().
  static SocketAddress any(int family, int port);
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  int family() const { return storage_.ss_family; }
  int port() const;
  std::string host() const;  // in digits
  bool is_loopback() const;
  bool is_link_local() const;  // it has a meaning on one network only

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// A socket of IPv6 that listens at SocketAddress::any() gets connections of IPv4 too.
void accept_both_families(int socket);

// The address at which a socket is bound.
SocketAddress own_address(int socket);

struct Resolved {
  std::vector<SocketAddress> addresses;
  std::string problem;  // why there are none
};
// The addresses of a name, or of digits. `kind` is SOCK_STREAM or SOCK_DGRAM.
Resolved resolve(const std::string& host, int port, int kind = SOCK_STREAM);

// "localhost" and the addresses of loopback.
bool is_loopback_host(const std::string& host);
// The address of loopback that such a host means, without a look-up; another host as it is.
std::string loopback_address(const std::string& host);

}  // namespace accel
