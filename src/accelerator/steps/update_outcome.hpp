// SPDX-License-Identifier: Apache-2.0
// Update outcome: whether the latest update of an optimizer was skipped, which the host may have to read from a device,
// and what waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace accel::precision {
class OverflowFlag;
}

namespace accel::accelerator {

class UpdateOutcome {
 public:
  // An update begins, skipped so far. Settles the former one.
  void begin();
  int64_t num_updates() const { return num_updates_; }
  void set(bool skipped);
  // Only the device knows it: an update is skipped if the flag is set.
  void set(std::shared_ptr<precision::OverflowFlag> overflow);

  // Whether was_skipped() answers at once. On any thread, as that.
  bool is_known() const;
  // Waits for the device where it has yet to tell.
  bool was_skipped() const;
  // Calls `action` now if the outcome is known, otherwise in settle().
  void when_known(std::function<void()> action);
  // Waits for the device, and makes the calls that wait for it.
  void settle();
  // Does so only where calls wait for it.
  void make_waiting_calls();
  // The flag by which the device knows it; null if the host does.
  std::shared_ptr<const precision::OverflowFlag> overflow() const;

 private:
  mutable std::mutex mutex_;
  bool skipped_ = false;
  std::shared_ptr<precision::OverflowFlag> overflow_;  // null: skipped_ is right
  std::vector<std::function<void()>> waiting_;
  int64_t num_updates_ = 0;
};

}  // namespace accel::accelerator
