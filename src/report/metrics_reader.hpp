// SPDX-License-Identifier: Apache-2.0
// Puts the lines of metrics.jsonl into a run.
#pragma once

#include <cstdint>
#include <string_view>

#include "json/json.hpp"
#include "report/run.hpp"

namespace accel::report {

inline constexpr const char* kMetricsFile = "metrics.jsonl";

class MetricsReader {
 public:
  // `most_points`: that the run may have in memory.
  MetricsReader(Run& run, size_t most_points) : run_(run), most_points_(most_points) {}

  // An error in the line becomes a problem of the run. Null: it was too long.
  void take(const std::string_view* line, int64_t number, uint32_t version);
  void take_cut_off(const std::string_view* line, int64_t number, uint32_t version);

 private:
  void take_object(const Json& line);
  void take_start(const Json& line);
  void take_values(const Json& line);
  void take_value(const std::string& name, const Json& value, const Json& line, double time, int depth);
  void take_histogram(const Json& line);
  void take_picture(const Json& line);
  void take_table(const Json& line);
  void take_artifact(const Json& line);
  void take_step_report(const Json& line);
  void add_point(SeriesName name, double step, double time, double value);

  Run& run_;
  size_t most_points_;
  size_t num_points_ = 0;
  uint32_t version_ = 0;
};

}  // namespace accel::report
