// SPDX-License-Identifier: Apache-2.0
// What the works of a backend may be, beside those of our own backends: each is a plugin of the tests.
#pragma once

#include <cstdint>

namespace accel::tests {

enum class OtherWorks : uint8_t {
  kNull,    // no work at all: the result is queued on the caller's current stream, as NCCL does for `asyncOp = false`
  kStream,  // wait() returns at once, with the caller's current stream behind the result, which then may not be there
  kLate,    // the call starts, and its work fails later where the result has a NaN
};

extern const OtherWorks kOtherWorks;  // of the plugin

}  // namespace accel::tests
