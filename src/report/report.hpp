// SPDX-License-Identifier: Apache-2.0
// The runs below some folders, as far as their files have been read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "report/line_file.hpp"
#include "report/metrics_reader.hpp"
#include "report/run.hpp"
#include "report/run_folders.hpp"

namespace accel::report {

// In memory, of all runs together; beyond it, series are reduced while they are read.
inline constexpr size_t kMostPointsInMemory = 2000000;

class Report {
 public:
  // kNotFound if one of the folders is not there. `is_live`: what is being written is read when it is complete.
  Report(std::vector<std::string> folders, bool is_live);
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Reads what is new: of files, lines that are complete. A file that was replaced begins again as another run.
  void update();
  // Also the last lines, which nothing will complete any more.
  void finish();

  // The version of what has been read. It grows with each update() that found something.
  uint32_t version() const { return version_; }
  std::vector<const Run*> runs() const;

 private:
  struct Source {
    Source(RunFolder found, uint32_t id, uint32_t version, size_t most_points);

    RunFolder folder;
    LineFile metrics;
    Run run;
    MetricsReader reader;
    std::string failure;      // of the last attempt to read the metrics
    std::string trace_state;  // files, sizes and times of the traces that were read, and as they were at the last look
    std::string seen_trace_state;
  };

  bool find_runs();  // whether there are new ones
  bool read_metrics(std::unique_ptr<Source>& source, uint32_t version);
  bool read_traces(Source& source, uint32_t version);
  void name_runs();

  const std::vector<std::string> folders_;
  const bool is_live_;
  std::map<std::string, std::unique_ptr<Source>> sources_;  // by the canonical path
  std::vector<std::string> order_;
  uint32_t version_ = 0;
  uint32_t last_id_ = 0;
};

}  // namespace accel::report
