// SPDX-License-Identifier: Apache-2.0
// The data of one run. Each part says in which version of the report it was read, so that a page that is open needs
// only what is newer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/problems.hpp"
#include "report/series.hpp"
#include "report/trace_summary.hpp"

namespace accel::report {

inline constexpr int64_t kNoRank = -1;

struct SeriesName {
  int64_t rank = kNoRank;  // of step reports; else what the program has logged
  std::string name;

  bool operator<(const SeriesName& other) const { return rank != other.rank ? rank < other.rank : name < other.name; }
};

struct Histogram {
  std::string name;
  double step = 0;
  double least = 0, greatest = 0, count = 0, sum = 0;
  std::vector<double> edges, counts;
  uint32_t version = 0;
};

// An image or a figure: a file in the folder of the run.
struct Picture {
  std::string name;
  double step = 0;
  std::string file;
  uint32_t version = 0;
};

struct Table {
  std::string name;
  double step = 0;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  int64_t num_rows = 0;  // more than are here if the table is large
  uint32_t version = 0;
};

struct Note {
  std::string name;
  double step = 0;
  std::string words;
  uint32_t version = 0;
};

struct Artifact {
  std::string name;
  std::string file;
  uint32_t version = 0;
};

struct Start {
  double time = 0;
  std::string project, run, host, version;
  int64_t pid = 0, world_size = 0;
  bool is_resumed = false;
};

using Settings = std::vector<std::pair<std::string, std::string>>;  // "optimizer/lr", "0.1"

struct Run {
  uint32_t id = 0;
  std::string name;    // what distinguishes it from the others
  std::string folder;  // as it was found
  std::string status;  // "running", "finished", "released"; empty before the first line
  std::vector<Start> starts;
  Settings configuration, environment;
  std::map<SeriesName, Series> series;
  std::vector<Histogram> histograms;
  std::vector<Picture> pictures;
  std::vector<Table> tables;
  std::vector<Note> notes;
  std::vector<Artifact> artifacts;
  std::map<int64_t, std::string> hosts;    // of the ranks
  std::map<int64_t, int64_t> num_slowest;  // how many step reports name this rank
  double first_time = 0, last_time = 0;    // of all lines
  uint32_t version = 0;                    // of the starts, settings, hosts and problems
  Problems problems;                       // of the metrics
  TraceSummary trace;
  Problems trace_problems;
  uint32_t trace_version = 0;
};

}  // namespace accel::report
