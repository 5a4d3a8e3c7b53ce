// SPDX-License-Identifier: Apache-2.0
// Errors of system calls.
#pragma once

#include <string>

#include "base/status.hpp"

namespace accel {

// With errno's text: "cannot write 'model.safetensors': No space left on device". kOutOfMemory for ENOMEM.
[[noreturn]] void fail_system(Status status, const char* action, const std::string& path);

}  // namespace accel
