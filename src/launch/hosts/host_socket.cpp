#include "launch/hosts/host_socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/error.hpp"

namespace accel::launch {
namespace {

constexpr int kWaitingConnections = 1024;

struct AddressListDelete {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
struct InterfacesDelete {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
using Interfaces = std::unique_ptr<ifaddrs, InterfacesDelete>;

Interfaces interfaces() {
  ifaddrs* found = nullptr;
  require(getifaddrs(&found) == 0, Status::kIo, "the network interfaces cannot be listed: ", std::strerror(errno));
  return Interfaces(found);
}

std::string text_of(const in_addr& address) {
  char written[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, written, sizeof written);
  return written;
}

std::string address_of(const ifaddrs& interface) {
  if (interface.ifa_addr == nullptr || interface.ifa_addr->sa_family != AF_INET) return "";
  return text_of(reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr);
}

struct Resolved {
  std::unique_ptr<addrinfo, AddressListDelete> list;
  std::string problem;
};

Resolved resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {std::unique_ptr<addrinfo, AddressListDelete>(error == 0 ? found : nullptr),
          error == 0 ? "" : gai_strerror(error)};
}

sockaddr_in socket_address(const std::string& address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  result.sin_addr.s_addr = htonl(INADDR_ANY);
  if (!address.empty()) inet_pton(AF_INET, address.c_str(), &result.sin_addr);
  return result;
}

FileDescriptor new_socket() {
  FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  require(made.is_open(), Status::kIo, "no socket can be made: ", std::strerror(errno));
  return made;
}

}  // namespace

Interface find_interface(const std::string& name_or_address) {
  std::string known;
  const Interfaces list = interfaces();
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    const std::string address = address_of(*one);
    if (address.empty()) continue;
    if (name_or_address == one->ifa_name || name_or_address == address) return {one->ifa_name, address};
    known += std::string(known.empty() ? "" : ", ") + one->ifa_name + " (" + address + ")";
  }
  fail(Status::kInvalidArgument, "--interface is '", name_or_address, "'; expected one of ", known);
}

bool is_loopback_host(const std::string& host) { return host == "localhost" || host.rfind("127.", 0) == 0; }

bool is_own_address(const std::string& host) {
  std::set<std::string> own;
  const Interfaces list = interfaces();
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) own.insert(address_of(*one));
  const Resolved resolved = resolve(host, 0);
  for (const addrinfo* entry = resolved.list.get(); entry != nullptr; entry = entry->ai_next) {
    const std::string address = text_of(reinterpret_cast<const sockaddr_in*>(entry->ai_addr)->sin_addr);
    if (own.count(address) > 0 || is_loopback_host(address)) return true;
  }
  return false;
}

Listener listen_at(const std::string& address, int port) {
  Listener listener{new_socket(), port};
  const int yes = 1;
  setsockopt(listener.socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in own = socket_address(address, port);
  socklen_t length = sizeof own;
  const bool bound = bind(listener.socket.number(), reinterpret_cast<const sockaddr*>(&own), length) == 0 &&
                     listen(listener.socket.number(), kWaitingConnections) == 0;
  require(bound || errno == EADDRINUSE, Status::kIo, "the launcher cannot listen at ", address.empty() ? "*" : address,
          ":", port, ": ", std::strerror(errno));
  if (!bound) return {};
  getsockname(listener.socket.number(), reinterpret_cast<sockaddr*>(&own), &length);
  listener.port = ntohs(own.sin_port);
  return listener;
}

FileDescriptor accept_from(const FileDescriptor& listener, std::string& from) {
  sockaddr_in other{};
  socklen_t length = sizeof other;
  FileDescriptor made(
      accept4(listener.number(), reinterpret_cast<sockaddr*>(&other), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (made.is_open()) from = text_of(other.sin_addr);
  return made;
}

BegunConnection begin_connection_to(const std::string& host, int port, const std::string& own_address) {
  const Resolved resolved = resolve(host, port);
  if (!resolved.list) return {FileDescriptor(), resolved.problem};
  BegunConnection begun{new_socket(), ""};
  const int number = begun.socket.number();
  const int yes = 1;
  setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!own_address.empty()) {
    const sockaddr_in own = socket_address(own_address, 0);
    require(bind(number, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, Status::kIo, "the address ",
            own_address, " cannot be used: ", std::strerror(errno));
  }
  if (connect(number, resolved.list->ai_addr, resolved.list->ai_addrlen) == 0 || errno == EINPROGRESS) return begun;
  return {FileDescriptor(), std::strerror(errno)};
}

std::string connection_problem(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace accel::launch
