// SPDX-License-Identifier: Apache-2.0
// TCP sockets of the launchers. Nothing blocks but the look-up of a name.
#pragma once

#include <string>

#include "os/file_descriptor.hpp"

namespace accel::launch {

struct Interface {
  std::string name, address;
};
// The interface with that name ("eth0"), or with that address.
Interface find_interface(const std::string& name_or_address);

// Whether the name or address is one of this host.
bool is_own_address(const std::string& host);

struct Listener {
  FileDescriptor socket;  // closed if another program has the port
  int port = 0;
};
// Listens on the address, "" for all, of IPv4 and IPv6. Other failures are an Error with Status::kIo.
Listener listen_at(const std::string& address, int port);

// A new connection, or a closed descriptor if there is none now; `from` is the address of the other side.
FileDescriptor accept_from(const FileDescriptor& listener, std::string& from);

struct BegunConnection {
  FileDescriptor socket;  // writable once it is made
  std::string problem;    // why there is none
};
// A name may have several addresses: each call takes the next one.
BegunConnection begin_connection_to(const std::string& host, int port, const std::string& own_address);
// Empty if the connection was made; else why not.
std::string connection_problem(const FileDescriptor& socket);

}  // namespace accel::launch
