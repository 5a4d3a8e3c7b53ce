// Trackers of a run: starts them, and hands them what is logged.
#pragma once

#include "base/json.hpp"

namespace accel::track {

class Tracker {};

class Trackers {
 public:
  void log_step_report(const Json& /*report*/) {}
};

}  // namespace accel::track
