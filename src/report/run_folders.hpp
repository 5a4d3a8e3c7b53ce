// SPDX-License-Identifier: Apache-2.0
// Finds the folders of runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accel::report {

struct TraceFile {
  std::string path;
  std::string name;   // from the folder of the run
  int64_t rank = -1;  // negative: of all ranks
};

struct RunFolder {
  std::string path;
  bool has_metrics = false;
  std::vector<TraceFile> traces;
};

// `folder` and all below it that have metrics.jsonl, and those with traces alone; traces below a run are of that run.
// Symbolic links below `folder` are not followed. kNotFound if there is no such folder, kIo if it cannot be read.
std::vector<RunFolder> find_run_folders(const std::string& folder);

// The shortest ends of the paths that differ from each other.
std::vector<std::string> distinct_names(const std::vector<std::string>& paths);

}  // namespace accel::report
