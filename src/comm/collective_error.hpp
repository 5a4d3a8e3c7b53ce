// Error of a collective. Header only: backend plugins throw it without a symbol of libaccel.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

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
