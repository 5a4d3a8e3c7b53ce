// SPDX-License-Identifier: Apache-2.0
#include "os/system_error.hpp"

#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace accel {

void fail_system(Status status, const char* action, const std::string& path) {
  const int code = errno;
  fail(code == ENOMEM ? Status::kOutOfMemory : status, "cannot ", action, " '", path,
       "': ", std::generic_category().message(code));
}

}  // namespace accel
