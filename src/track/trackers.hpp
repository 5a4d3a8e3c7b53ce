// Trackers of a run: starts them, and hands them what is logged.
#pragma once

namespace accel::track {

class Tracker {};

class Trackers {};

}  // namespace accel::track
