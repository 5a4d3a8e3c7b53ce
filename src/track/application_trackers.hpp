// SPDX-License-Identifier: Apache-2.0
// The trackers that the program brings: those that it has added, and those of them that run here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/generated/choices/tracker_failure.hpp"
#include "track/tracker.hpp"

namespace accel::track {

class ApplicationTrackers {
 public:
  using Trackers = std::vector<std::shared_ptr<ApplicationTracker>>;
  using Content = std::function<const c10::IValue*(const ApplicationTracker&)>;

  // Replaces one of the same name.
  void add(std::shared_ptr<ApplicationTracker> tracker);
  const Trackers& added() const { return added_; }
  bool has(const std::string& name) const;

  void set_on_failure(TrackerFailure on_failure) { on_failure_ = on_failure; }
  void run(const std::shared_ptr<ApplicationTracker>& tracker);
  const Trackers& running() const { return running_; }
  // To each that runs, by the rule of on_failure.
  void notify(TrackerEvent event, int64_t step, const Content& content);
  // They are not notified.
  void stop();

 private:
  void leave_out(ApplicationTracker& tracker);

  Trackers added_;
  Trackers running_;
  TrackerFailure on_failure_ = TrackerFailure::kWarn;
};

// The tracker with the name, or the end.
template <typename Pointers>
auto find_named(const Pointers& trackers, const std::string& name) {
  return std::find_if(trackers.begin(), trackers.end(), [&](const auto& each) { return each->name() == name; });
}

}  // namespace accel::track
