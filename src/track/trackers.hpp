// SPDX-License-Identifier: Apache-2.0
// Trackers of a run: starts them, and hands them what is logged. Called by one thread at a time, but for
// latest_scalars().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/generated/settings/tracking/tracking.hpp"
#include "json/json.hpp"
#include "track/application_trackers.hpp"
#include "track/latest_scalars.hpp"
#include "track/record.hpp"
#include "track/record_sink.hpp"
#include "track/record_writer.hpp"
#include "track/tracker.hpp"

namespace accel::track {

class RunLock;

// The arguments of accel_init_trackers().
struct TrackingStart {
  std::string project;
  Json configuration;  // null: none
  Json options;        // by tracker; null: none
  TrackingSettings settings;
  std::string version;  // of this library
  int rank = 0;
  int world_size = 1;
};

class Trackers {
 public:
  Trackers();
  ~Trackers();
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;

  // Adds a tracker of the program; it replaces one of the same name. kInvalidState while trackers run.
  void add(std::shared_ptr<ApplicationTracker> tracker);
  // Ends those that run, and starts others. Trackers of the program run from then on; the caller tells them.
  void start(const TrackingStart& start);
  // Also without trackers. kIo; what a tracker of the program says.
  void finish(bool finished = true);
  bool is_running() const { return is_running_; }

  // A record that fill(Record&) makes, for all built-in trackers. kIo, see RecordWriter.
  template <typename Fill>
  void log(int64_t step, const Fill& fill);
  // Logs a report in the form of the JSON lines: {"ranks": [...], "slowest_rank": n}. It belongs to the step of the
  // values before it.
  void log_step_report(Json report);
  // 0: never.
  int64_t step_report_interval() const { return is_running_ ? step_report_interval_ : 0; }

  // To each tracker of the program that runs here, by the rule of on_failure.
  void notify(TrackerEvent event, int64_t step, const ApplicationTrackers::Content& content) {
    applications_.notify(event, step, content);
  }
  bool has_applications() const { return !applications_.running().empty(); }
  bool has_built_in() const { return !built_in_.empty(); }

  // Until all is written. kIo
  void flush();

  const Run& run() const { return run_; }
  std::vector<std::string> names() const;
  // kNotFound if others run.
  std::shared_ptr<Tracker> find(const std::string& name) const;

  // The latest scalar of each name that was logged, on every rank and without trackers too; at most some thousand
  // names.
  LatestScalars::Scalars latest_scalars() const { return latest_.all(); }

 private:
  void check(const TrackingStart& start, const std::vector<std::string>& names) const;
  void start_built_in(const TrackingStart& start, const std::vector<std::string>& names);
  void add_to_writers();

  ApplicationTrackers applications_;
  std::vector<std::shared_ptr<Tracker>> built_in_;  // that run here
  std::vector<std::string> elsewhere_;              // those that run on other ranks
  std::vector<std::shared_ptr<RecordWriter>> writers_;
  std::unique_ptr<RunLock> lock_;
  Run run_;
  int64_t step_report_interval_ = 0;
  bool is_running_ = false;
  Record record_;  // memory that is used again
  LatestScalars latest_;
};

template <typename Fill>
void Trackers::log(int64_t step, const Fill& fill) {
  record_.clear();
  record_.step = step;
  record_.wants_histograms = !writers_.empty();
  fill(record_);
  if (record_.kind == Record::Kind::kValues) latest_.add(record_);
  if (!writers_.empty()) add_to_writers();
}

}  // namespace accel::track
