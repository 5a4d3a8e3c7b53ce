// SPDX-License-Identifier: Apache-2.0
#include "base/status.hpp"

namespace accel {

const char* status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ACCEL_OK";
    case Status::kInProgress:
      return "ACCEL_IN_PROGRESS";
    case Status::kIterEnd:
      return "ACCEL_ITER_END";
    case Status::kStepSkipped:
      return "ACCEL_STEP_SKIPPED";
    case Status::kInvalidArgument:
      return "ACCEL_ERROR_INVALID_ARGUMENT";
    case Status::kInvalidHandle:
      return "ACCEL_ERROR_INVALID_HANDLE";
    case Status::kTypeMismatch:
      return "ACCEL_ERROR_TYPE_MISMATCH";
    case Status::kShapeMismatch:
      return "ACCEL_ERROR_SHAPE_MISMATCH";
    case Status::kNotFound:
      return "ACCEL_ERROR_NOT_FOUND";
    case Status::kAlreadyExists:
      return "ACCEL_ERROR_ALREADY_EXISTS";
    case Status::kInvalidState:
      return "ACCEL_ERROR_INVALID_STATE";
    case Status::kUnsupported:
      return "ACCEL_ERROR_UNSUPPORTED";
    case Status::kNotImplemented:
      return "ACCEL_ERROR_NOT_IMPLEMENTED";
    case Status::kOutOfMemory:
      return "ACCEL_ERROR_OUT_OF_MEMORY";
    case Status::kIo:
      return "ACCEL_ERROR_IO";
    case Status::kCorrupt:
      return "ACCEL_ERROR_CORRUPT";
    case Status::kTimeout:
      return "ACCEL_ERROR_TIMEOUT";
    case Status::kCancelled:
      return "ACCEL_ERROR_CANCELLED";
    case Status::kPeerLost:
      return "ACCEL_ERROR_PEER_LOST";
    case Status::kCollectiveMismatch:
      return "ACCEL_ERROR_COLLECTIVE_MISMATCH";
    case Status::kBackend:
      return "ACCEL_ERROR_BACKEND";
    case Status::kTorch:
      return "ACCEL_ERROR_TORCH";
    case Status::kUser:
      return "ACCEL_ERROR_USER";
    case Status::kInternal:
      return "ACCEL_ERROR_INTERNAL";
  }
  return nullptr;
}

}  // namespace accel
