// SPDX-License-Identifier: Apache-2.0
// Any bytes as what another launcher sends, in pieces of 1,000: messages, or an error after which the link would be
// closed. The first byte says whether the lines carry codes: then none of them is taken.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/error.hpp"
#include "fuzz_target.hpp"
#include "launch/hosts/host_description.hpp"
#include "launch/hosts/message_link.hpp"

namespace host_lines_fuzz {

using namespace accel;
using namespace accel::launch;

FUZZ_TARGET(host_lines) {
  if (size == 0) return 0;
  int ends[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  MessageLink link{FileDescriptor(ends[0])};
  const FileDescriptor other(ends[1]);
  const bool has_codes = (data[0] & 1) != 0;
  if (has_codes) link.protect("own key", "other key");
  try {
    for (size_t at = 1; at < size && link.is_open();) {
      const ssize_t sent = send(other.number(), data + at, std::min<size_t>(1000, size - at), MSG_NOSIGNAL);
      check(sent > 0);
      at += static_cast<size_t>(sent);
      link.transfer(POLLIN);
      while (const auto message = link.next()) {
        check(!has_codes && message->members() != nullptr);
        host_description(*message);
      }
    }
  } catch (const Error& error) {
    check(!error.message().empty());
  }
  return 0;
}

}  // namespace host_lines_fuzz
