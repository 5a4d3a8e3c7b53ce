// SPDX-License-Identifier: Apache-2.0
// The failure of a group: the first one ends it, and is published to the other ranks.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "comm/ucx/host/status_page.hpp"
#include "comm/ucx/transport/peers.hpp"

namespace accel::comm::ucx {

class GroupFailure {
 public:
  // `mutex` is the engine's.
  GroupFailure(std::mutex& mutex, Peers& peers) : mutex_(mutex), peers_(peers) {}

  // Any thread. The first failure stays.
  void set(Failure failure) noexcept;
  // In the handler of an exception of a call.
  void set_to_exception() noexcept;
  // The group ends; the others need not know. True if it has not failed before.
  bool end(Failure failure) noexcept;
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }
  // For later calls: of the kind that the open ones get, so that a race between them does not change a program's error.
  void throw_if_set() const;
  // For the open calls, once it is set.
  std::exception_ptr error() const noexcept;

  // Under the mutex.
  bool is_known() const { return failure_.has_value(); }
  void throw_if_known() const;

 private:
  bool record(Failure failure) noexcept;

  std::mutex& mutex_;
  Peers& peers_;
  std::atomic<bool> is_set_{false};  // failure_ is set
  std::optional<Failure> failure_;   // under the mutex
};

// A lost or silent peer is the same failure on every rank that waits, whichever noticed it first. Any other failure is
// one rank's own, and aborts the calls of the others.
CollectiveFailure kind_for_others(CollectiveFailure kind);

// In an exception handler: the failure of the group that the exception means; `what` failed.
Failure current_failure(int rank, const std::string& what);
Failure failure_without_memory(int rank) noexcept;
// The end of a group by shutdown().
Failure end_of_group(int rank, const char* when) noexcept;

}  // namespace accel::comm::ucx
