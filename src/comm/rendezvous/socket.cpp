#include "comm/rendezvous/socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "base/error.hpp"

namespace accel::comm {
namespace {

constexpr int kBacklog = 1024;

struct AddressDelete {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressDelete>;

AddressList look_up(const Address& address, int kind) {
  addrinfo hints{};
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error == EAI_MEMORY) throw std::bad_alloc();
  return AddressList(error == 0 ? found : nullptr);
}

// Closed if this host does not support the address family.
FileDescriptor open_socket(const addrinfo& entry) {
  FileDescriptor opened(socket(entry.ai_family, entry.ai_socktype | SOCK_CLOEXEC, entry.ai_protocol));
  require(opened.is_open() || errno == EAFNOSUPPORT, Status::kIo, "no socket: ", std::strerror(errno),
          "; see the limit of open files (ulimit -n)");
  return opened;
}

// An unreachable host does not even refuse.
void limit_connect(const FileDescriptor& connection, Deadline::Milliseconds limit) {
  const auto count = std::max(limit, Deadline::Milliseconds(1)).count();
  timeval time{};
  time.tv_sec = count / 1000;
  time.tv_usec = count % 1000 * 1000;
  setsockopt(connection.number(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// If nothing listens at a local port, the kernel may choose it as the source port, and the socket connects to itself.
bool is_connected_to_itself(const FileDescriptor& connection) {
  sockaddr_storage own{}, other{};
  socklen_t own_length = sizeof own, other_length = sizeof other;
  return getsockname(connection.number(), reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(connection.number(), reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

// The address to listen on, so that a socket is open to one network only. A name that means this host alone, as
// distributions write it into /etc/hosts, means another address to other hosts.
in_addr_t interface_of(const std::string& host) {
  if (is_loopback(host)) return INADDR_LOOPBACK;
  const AddressList list = look_up({host, 0}, SOCK_STREAM);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET) continue;
    const in_addr_t found = ntohl(reinterpret_cast<const sockaddr_in*>(entry->ai_addr)->sin_addr.s_addr);
    return found >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET ? INADDR_ANY : found;
  }
  return INADDR_ANY;
}

}  // namespace

bool is_loopback(const std::string& host) { return host == "localhost" || host.rfind("127.", 0) == 0; }

FileDescriptor listen_on(const std::string& host, int port) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(listener.is_open(), Status::kIo, "no socket for the store: ", std::strerror(errno));
  const int yes = 1;
  setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(interface_of(host));
  const auto bind_to_it = [&] {
    return bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  bool bound = bind_to_it();
  // Others may reach this host by an address that it does not have, of a gateway or a service.
  if (!bound && errno == EADDRNOTAVAIL) {
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    bound = bind_to_it();
  }
  require(bound && listen(listener.number(), kBacklog) == 0, Status::kIo, "port ", port, " of ", host,
          " cannot be used: ", std::strerror(errno), "; set MASTER_PORT to a free port");
  return listener;
}

int port_of(const FileDescriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

Connection connect_to(const Address& address, Deadline::Milliseconds limit) {
  const auto list = look_up(address, SOCK_STREAM);
  Connection connection;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    FileDescriptor attempt = open_socket(*entry);
    limit_connect(attempt, limit);
    const bool connected = attempt.is_open() && connect(attempt.number(), entry->ai_addr, entry->ai_addrlen) == 0;
    if (connected && !is_connected_to_itself(attempt)) return {std::move(attempt), false};
    connection.refused = connected || errno == ECONNREFUSED;
  }
  return connection;
}

FileDescriptor begin_connection(const Address& address) {
  const auto list = look_up(address, SOCK_STREAM);
  if (!list) return {};
  list->ai_socktype |= SOCK_NONBLOCK;
  FileDescriptor connection = open_socket(*list);
  // link_state() reports the result.
  if (connection.is_open()) static_cast<void>(connect(connection.number(), list->ai_addr, list->ai_addrlen));
  return connection;
}

LinkState link_state(const FileDescriptor& connection) {
  pollfd state{connection.number(), POLLIN, 0};
  if (poll(&state, 1, 0) <= 0) return LinkState::kOpen;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == ECONNREFUSED) return LinkState::kRefused;
  return error == 0 || error == ECONNRESET || error == EPIPE ? LinkState::kEnded : LinkState::kUnknown;
}

std::string own_host_towards(const Address& other) {
  const auto list = look_up(other, SOCK_DGRAM);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET) continue;       // as listen_on()
    const FileDescriptor way = open_socket(*entry);  // nothing is sent
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char host[NI_MAXHOST];
    if (connect(way.number(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(way.number(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) ==
            0)
      return host;
  }
  return {};
}

}  // namespace accel::comm
