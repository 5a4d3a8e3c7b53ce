// SPDX-License-Identifier: Apache-2.0
#include "launch/ranks/claimed_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace accel::launch {
namespace {

// The first port after those that jobs of Slurm have by their numbers (scheduler_job.cpp).
constexpr int kFirstPort = 30000;

// The system takes ports from here up for a program that asks for any, or connects; 0 if it does not say.
int first_ephemeral_port() {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  range >> first;
  return first;
}

// A port that this process can listen at, 0 for any that is free; -1 if there is none, with errno.
int bindable_port(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(listener >= 0, Status::kIo, "no socket can be made: ", std::strerror(errno));
  const FileDescriptor owner(listener);
  const int reuse = 1;  // as the ranks: ends of older connections at the port do not matter
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? ntohs(address.sin_port) : -1;
}

// Launchers agree by the abstract name of a Unix socket, which belongs to the same network namespace as the port and
// goes with its owner. A bound socket of the port itself would stop ranks that listen without SO_REUSEADDR. Nothing if
// another launcher has the port; without a claim, -1, where the system has or allows no such sockets.
std::optional<FileDescriptor> claim(int port) {
  FileDescriptor owner(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!owner.is_open()) return owner;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "libaccel port " + std::to_string(port);
  name.copy(address.sun_path + 1, name.size());  // an abstract name begins with a zero
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(owner.number(), reinterpret_cast<const sockaddr*>(&address), size) == 0) return owner;
  if (errno == EADDRINUSE) return std::nullopt;
  return FileDescriptor();
}

}  // namespace

ClaimedPort::ClaimedPort() {
  std::random_device random;
  const int own_ports = first_ephemeral_port() - kFirstPort;
  for (int tries = 0; tries < 100 && own_ports > 0; tries++) {
    const int port = kFirstPort + static_cast<int>(random() % own_ports);
    std::optional<FileDescriptor> owner = claim(port);
    if (!owner || !is_port_free(port)) continue;
    number_ = port;
    claim_ = std::move(*owner);
    return;
  }
  number_ = bindable_port(0);
  require(number_ > 0, Status::kIo, "no free port was found: ", std::strerror(errno));
}

bool is_port_free(int port) { return bindable_port(port) >= 0; }

}  // namespace accel::launch
