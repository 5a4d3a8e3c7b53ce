// SPDX-License-Identifier: Apache-2.0
// A group, as the engine progresses it: by the thread that has claimed the engine.
#pragma once

#include <cstdint>

#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

class FailureDetector;

// The events that a group waits for.
struct GroupWait {
  const Session* session = nullptr;  // of its running collective
  bool for_messages = false;
  bool is_over = false;  // its collective must be resumed
};

// The calls of a group that are left to do.
enum class OpenWork : uint8_t {
  kNone,
  kMessages,  // that are under way
  kUrgent,    // collectives, and what nobody has begun
};

class ProgressedGroup {
 public:
  ProgressedGroup() = default;
  ProgressedGroup(const ProgressedGroup&) = delete;
  ProgressedGroup& operator=(const ProgressedGroup&) = delete;
  virtual ~ProgressedGroup() = default;

  virtual OpenWork open_work() const = 0;  // under the engine's mutex, while it is not claimed
  // Makes progress without waiting. True if something happened.
  virtual bool progress() noexcept = 0;
  virtual bool is_busy() const = 0;
  virtual GroupWait current_wait() const = 0;
  // Fails calls whose peers are lost or whose deadlines have passed.
  virtual void check_open_calls() noexcept = 0;
  virtual FailureDetector& detector() = 0;
};

}  // namespace accel::comm::ucx
