// SPDX-License-Identifier: Apache-2.0
// The status codes of the engine; capi/ asserts that they equal those of accel.h.
#pragma once

#include <cstdint>

namespace accel {

enum class Status : int32_t {
  kOk = 0,
  kInProgress = 1,
  kIterEnd = 2,
  kStepSkipped = 3,
  // The arguments: correct the call.
  kInvalidArgument = -1,
  kInvalidHandle = -2,
  kTypeMismatch = -3,
  kShapeMismatch = -4,
  kNotFound = -5,
  kAlreadyExists = -6,
  // The object or the build: the call cannot work now or here.
  kInvalidState = -10,
  kUnsupported = -11,
  kNotImplemented = -12,
  kOutOfMemory = -13,
  // The environment.
  kIo = -20,
  kCorrupt = -21,
  // The process group: rebuild it, except after a mismatch.
  kTimeout = -30,
  kCancelled = -31,
  kPeerLost = -32,
  kCollectiveMismatch = -33,
  kBackend = -34,
  // Below or above us.
  kTorch = -40,
  kUser = -41,
  kInternal = -42,
};

// "ACCEL_ERROR_TIMEOUT" and so on; null for an invalid number.
const char* status_name(Status status);

}  // namespace accel
