// SPDX-License-Identifier: Apache-2.0
#include "track/application_trackers.hpp"

#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace accel::track {

void ApplicationTrackers::add(std::shared_ptr<ApplicationTracker> tracker) {
  const auto found = find_named(added_, tracker->name());
  if (found == added_.end())
    added_.push_back(std::move(tracker));
  else
    added_[static_cast<size_t>(found - added_.begin())] = std::move(tracker);
}

bool ApplicationTrackers::has(const std::string& name) const { return find_named(added_, name) != added_.end(); }

void ApplicationTrackers::run(const std::shared_ptr<ApplicationTracker>& tracker) {
  running_.push_back(tracker);
  tracker->set_running(true);
}

void ApplicationTrackers::leave_out(ApplicationTracker& tracker) {
  tracker.set_running(false);
  const auto is_it = [&](const auto& each) { return each.get() == &tracker; };
  running_.erase(std::remove_if(running_.begin(), running_.end(), is_it), running_.end());
}

void ApplicationTrackers::notify(TrackerEvent event, int64_t step, const Content& content) {
  std::exception_ptr first;
  const Trackers told = running_;  // one that fails is left out
  for (const auto& tracker : told) {
    try {
      tracker->receive(event, content == nullptr ? nullptr : content(*tracker), step);
    } catch (const Error& error) {
      if (on_failure_ == TrackerFailure::kStop) {
        if (first == nullptr) first = std::current_exception();
        continue;
      }
      accel::log(LogLevel::kWarning, error.message(), "; it is left out from now on");
      leave_out(*tracker);
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void ApplicationTrackers::stop() {
  while (!running_.empty()) leave_out(*running_.back());
}

}  // namespace accel::track
