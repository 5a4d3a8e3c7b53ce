// SPDX-License-Identifier: Apache-2.0
// The events of one trace file (Chrome trace format), read in chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/problems.hpp"

namespace accel::report {

// At most so many events of a file are stored, in 48 bytes each; the others are only counted.
inline constexpr size_t kMostTraceEvents = 2000000;

struct TraceLane {
  int64_t rank = 0;
  std::string name;
};

struct TraceEvent {
  double begin = 0;  // microseconds
  double length = 0;
  double bytes = 0;
  uint32_t name = 0, kind = 0;  // in names
  uint32_t lane = 0;
  bool is_ours = false;
};

struct TraceEvents {
  std::vector<std::string> names;
  std::vector<TraceLane> lanes;
  std::vector<TraceEvent> events;
  int64_t num_events = 0;  // of the file
  double base = 0;         // of the clock, microseconds since 1970
};

inline constexpr const char* kOperatorKind = "operator";
inline constexpr const char* kDeviceKind = "device";
inline constexpr const char* kAnnotationKind = "annotation";

// `rank`: of the file; negative: that of the process that each event names. `file` names it in problems. An Error if
// nothing of it can be read.
TraceEvents read_trace(const std::string& path, int64_t rank, const std::string& file, Problems& problems);

}  // namespace accel::report
