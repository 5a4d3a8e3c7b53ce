// SPDX-License-Identifier: Apache-2.0
// Ports at which the ranks of a job meet.
#pragma once

#include "os/file_descriptor.hpp"

namespace accel::launch {

// A port of this machine that is free and belongs to this object: the system gives it to no program that asks for any
// port, and no other launcher of this library chooses it, until this object is destroyed. Ranks can listen at the port.
class ClaimedPort {
 public:
  ClaimedPort();

  int number() const { return number_; }

 private:
  int number_ = 0;
  FileDescriptor claim_;
};

// Whether a rank could listen at `port` now.
bool is_port_free(int port);

}  // namespace accel::launch
