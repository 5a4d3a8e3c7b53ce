// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_socket.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "os/socket_address.hpp"

namespace accel::launch {
namespace {

constexpr int kWaitingConnections = 1024;

struct InterfacesDelete {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// The interfaces with their addresses, those of IPv4 first. An address that is local to a link says nothing to other
// hosts.
std::vector<Interface> interfaces() {
  ifaddrs* found = nullptr;
  require(getifaddrs(&found) == 0, Status::kIo, "the network interfaces cannot be listed: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, InterfacesDelete> list(found);
  std::vector<Interface> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      const SocketAddress address(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (!address.is_link_local()) result.push_back({one->ifa_name, address.host()});
    }
  }
  return result;
}

FileDescriptor new_socket(int family) {
  FileDescriptor made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  require(made.is_open() || errno == EAFNOSUPPORT, Status::kIo, "no socket can be made: ", std::strerror(errno));
  return made;
}

// The address of an interface; "" is all of this host.
SocketAddress address_of(const std::string& digits, int port) {
  if (digits.empty()) return SocketAddress::any(new_socket(AF_INET6).is_open() ? AF_INET6 : AF_INET, port);
  const Resolved resolved = resolve(digits, port);
  require(!resolved.addresses.empty(), Status::kIo, "the address ", digits, " cannot be used: ", resolved.problem);
  return resolved.addresses[0];
}

}  // namespace

Interface find_interface(const std::string& name_or_address) {
  std::string known;
  for (const Interface& one : interfaces()) {
    if (name_or_address == one.name || name_or_address == one.address) return one;
    known += std::string(known.empty() ? "" : ", ") + one.name + " (" + one.address + ")";
  }
  fail(Status::kInvalidArgument, "--interface is '", name_or_address, "'; expected one of ", known);
}

bool is_own_address(const std::string& host) {
  const std::vector<Interface> own = interfaces();
  const std::vector<SocketAddress> addresses = resolve(host, 0).addresses;
  return std::any_of(addresses.begin(), addresses.end(), [&own](const SocketAddress& address) {
    return address.is_loopback() ||
           std::any_of(own.begin(), own.end(), [&](const Interface& one) { return one.address == address.host(); });
  });
}

Listener listen_at(const std::string& address, int port) {
  const SocketAddress own = address_of(address, port);
  Listener listener{new_socket(own.family()), port};
  const int yes = 1;
  setsockopt(listener.socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (own.family() == AF_INET6) accept_both_families(listener.socket.number());
  const bool bound = bind(listener.socket.number(), own.get(), own.length()) == 0 &&
                     listen(listener.socket.number(), kWaitingConnections) == 0;
  require(bound || errno == EADDRINUSE, Status::kIo, "the launcher cannot listen at ", address.empty() ? "*" : address,
          ":", port, ": ", std::strerror(errno));
  if (!bound) return {};
  listener.port = own_address(listener.socket.number()).port();
  return listener;
}

FileDescriptor accept_from(const FileDescriptor& listener, std::string& from) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  FileDescriptor made(
      accept4(listener.number(), reinterpret_cast<sockaddr*>(&other), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (made.is_open()) from = SocketAddress(reinterpret_cast<const sockaddr*>(&other), length).host();
  return made;
}

BegunConnection begin_connection_to(const std::string& host, int port, const std::string& own_address) {
  static std::atomic<size_t> calls{0};
  Resolved resolved = resolve(host, port);
  std::vector<SocketAddress>& addresses = resolved.addresses;
  const SocketAddress own = own_address.empty() ? SocketAddress() : address_of(own_address, 0);
  if (!own_address.empty() && !addresses.empty()) {
    const auto differs = [&own](const SocketAddress& one) { return one.family() != own.family(); };
    addresses.erase(std::remove_if(addresses.begin(), addresses.end(), differs), addresses.end());
    resolved.problem = text(host, " has no address of the family of ", own_address);
  }
  if (addresses.empty()) return {FileDescriptor(), resolved.problem};
  const SocketAddress& address = addresses[calls++ % addresses.size()];
  BegunConnection begun{new_socket(address.family()), ""};
  const int number = begun.socket.number();
  const int yes = 1;
  setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!own_address.empty())
    require(bind(number, own.get(), own.length()) == 0, Status::kIo, "the address ", own_address,
            " cannot be used: ", std::strerror(errno));
  if (connect(number, address.get(), address.length()) == 0 || errno == EINPROGRESS) return begun;
  return {FileDescriptor(), std::strerror(errno)};
}

std::string connection_problem(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace accel::launch
