// SPDX-License-Identifier: Apache-2.0
// A pipe between two processes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"

namespace accel::launch {

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

// Both ends are closed on exec.
inline Pipe make_pipe() {
  int ends[2];
  require(pipe2(ends, O_CLOEXEC) == 0, Status::kIo, "no pipe can be made: ", std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace accel::launch
