// SPDX-License-Identifier: Apache-2.0
// Error of a collective. Header only: backend plugins throw it without a symbol of libaccel.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/status.hpp"

namespace accel::comm {

enum class CollectiveFailure : int32_t {
  kTimeout,   // the deadline passed, here or on another waiting rank; the message names the ranks that did not answer
  kPeerLost,  // a peer's process ended or its connection broke
  kMismatch,  // the ranks did not call the same collective with the same shapes and dtypes; the group stays usable
  kAborted,   // the group was shut down, here or by a peer that failed
  kInvalid,   // the arguments of this rank are invalid
  kBackend,   // the transport failed
  kOutOfMemory,
};

inline bool group_survives(CollectiveFailure failure) {
  return failure == CollectiveFailure::kMismatch || failure == CollectiveFailure::kInvalid;
}

inline Status status_of(CollectiveFailure failure) {
  switch (failure) {
    case CollectiveFailure::kTimeout:
      return Status::kTimeout;
    case CollectiveFailure::kPeerLost:
      return Status::kPeerLost;
    case CollectiveFailure::kMismatch:
      return Status::kCollectiveMismatch;
    case CollectiveFailure::kAborted:
      return Status::kCancelled;
    case CollectiveFailure::kInvalid:
      return Status::kInvalidArgument;
    case CollectiveFailure::kBackend:
      return Status::kBackend;
    case CollectiveFailure::kOutOfMemory:
      return Status::kOutOfMemory;
  }
  return Status::kBackend;
}

class CollectiveError : public std::runtime_error {
 public:
  CollectiveError(CollectiveFailure failure, int rank, const std::string& message)
      : std::runtime_error(message), failure_(failure), rank_(rank) {}
  CollectiveFailure failure() const { return failure_; }
  int rank() const { return rank_; }  // the rank that reports, not the one at fault

 private:
  CollectiveFailure failure_;
  int rank_;
};

}  // namespace accel::comm
