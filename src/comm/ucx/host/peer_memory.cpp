// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/peer_memory.hpp"

#include <poll.h>
#include <sys/uio.h>

namespace accel::comm::ucx {

bool read_memory(int process, uint64_t address, void* to, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const iovec local{static_cast<char*>(to) + at, bytes - at};
    const iovec remote{reinterpret_cast<void*>(address + at), bytes - at};
    const ssize_t read = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (read <= 0) return false;
    at += static_cast<size_t>(read);
  }
  return true;
}

bool has_ended(int process_descriptor) {
  pollfd end{process_descriptor, POLLIN, 0};
  return process_descriptor >= 0 && poll(&end, 1, 0) > 0;
}

}  // namespace accel::comm::ucx
