// SPDX-License-Identifier: Apache-2.0
#include "os/socket_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace accel {
namespace {

struct AddressListDelete {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

const sockaddr_in& ipv4(const SocketAddress& address) { return *reinterpret_cast<const sockaddr_in*>(address.get()); }
const sockaddr_in6& ipv6(const SocketAddress& address) { return *reinterpret_cast<const sockaddr_in6*>(address.get()); }

// The address of IPv4 in one of IPv6.
in_addr mapped(const in6_addr& address) {
  in_addr result{};
  std::memcpy(&result, &address.s6_addr[12], sizeof result);
  return result;
}

bool is_loopback(in_addr address) { return ntohl(address.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET; }

}  // namespace

SocketAddress SocketAddress::any(int family, int port) {
  SocketAddress result;
  result.storage_.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(result.storage_);
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    result.length_ = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(result.storage_);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    result.length_ = sizeof address;
  }
  return result;
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

int SocketAddress::port() const { return ntohs(family() == AF_INET6 ? ipv6(*this).sin6_port : ipv4(*this).sin_port); }

std::string SocketAddress::host() const {
  char digits[NI_MAXHOST] = "";
  if (family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&ipv6(*this).sin6_addr)) {
    const in_addr address = mapped(ipv6(*this).sin6_addr);
    inet_ntop(AF_INET, &address, digits, sizeof digits);
  } else {
    getnameinfo(get(), length_, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST);
  }
  return digits;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return accel::is_loopback(ipv4(*this).sin_addr);
  if (family() != AF_INET6) return false;
  const in6_addr& address = ipv6(*this).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && accel::is_loopback(mapped(address)));
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&ipv6(*this).sin6_addr);
}

void accept_both_families(int socket) {
  const int no = 0;
  setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
}

SocketAddress own_address(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &length);
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

Resolved resolve(const std::string& host, int port, int kind) {
  addrinfo hints{};
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == EAI_MEMORY) throw std::bad_alloc();
  if (error != 0) return {{}, gai_strerror(error)};
  const std::unique_ptr<addrinfo, AddressListDelete> list(found);
  Resolved result;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6)
      result.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  if (result.addresses.empty()) result.problem = "the name has no address of IPv4 or IPv6";
  return result;
}

bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string loopback_address(const std::string& host) {
  return is_loopback_host(host) && host != "::1" ? "127.0.0.1" : host;
}

}  // namespace accel
