// SPDX-License-Identifier: Apache-2.0
// Files of trackers: what was flushed is readable, and a run that goes on adds to it. Two values are logged before each
// promise, which is a flush.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "json/json.hpp"
#include "track/event_frame.hpp"
#include "track/record.hpp"
#include "track/trackers.hpp"
#include "written_kinds.hpp"

namespace power_cut {
namespace {

namespace fs = std::filesystem;
namespace track = accel::track;

constexpr int64_t kValuesOfPromise = 2, kPromises = 2, kFirst = 10;
constexpr const char* kPicture = "not quite a picture";
using Steps = std::set<int64_t>;

std::string run_folder(const std::string& folder) { return folder + "/new/logs/run"; }

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class RunningTracker {
 public:
  RunningTracker(const std::string& folder, const std::string& tracker) {
    track::TrackingStart start;
    start.project = "run";
    start.settings.log_with = tracker;
    start.settings.logging_dir = folder + "/new/logs";
    start.settings.flush_interval_ms = 1;
    trackers_.start(start);
  }

  void log(int64_t step, bool has_picture) {
    trackers_.log(step, [&](track::Record& record) {
      record.time = 1;
      record.add_integer("step_number", step);
    });
    if (!has_picture) return;
    trackers_.log(step, [&](track::Record& record) {
      record.time = 1;
      record.kind = track::Record::Kind::kImages;
      record.pictures.push_back({"picture", kPicture, "png", 1, 1});
    });
  }
  // Until the thread has written, so that the next values are a write of their own.
  static void let_write() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
  void flush() { trackers_.flush(); }
  void finish() { trackers_.finish(); }

 private:
  track::Trackers trackers_;
};

// The steps whose lines are whole, and whose pictures are too.
Steps steps_of_lines(const std::string& folder) {
  Steps values, pictures, both;
  std::istringstream lines(read_file(run_folder(folder) + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) try {
      const accel::Json json = accel::parse_json(line, "line");
      const std::string type = json_text(json, "type", "");
      if (type == "values") values.insert(json_integer(json, "step", -1));
      if (type == "image" && read_file(run_folder(folder) + "/" + json_text(json, "file", "")) == kPicture)
        pictures.insert(json_integer(json, "step", -1));
    } catch (const accel::Error&) {  // a line that a power cut has damaged
    }
  std::set_intersection(values.begin(), values.end(), pictures.begin(), pictures.end(),
                        std::inserter(both, both.begin()));
  return both;
}

// The rows behind a whole header, up to the first that is damaged.
Steps steps_of_rows(const std::string& folder) {
  Steps steps;
  std::istringstream rows(read_file(run_folder(folder) + "/metrics.csv"));
  std::string row;
  if (!std::getline(rows, row) || row != "step,time,step_number") return steps;
  while (std::getline(rows, row) && !rows.eof()) {
    std::istringstream fields(row);
    std::string step, time, number;
    std::getline(fields, step, ',');
    std::getline(fields, time, ',');
    std::getline(fields, number, ',');
    if (step.empty() || step != number) break;
    steps.insert(std::stoll(step));
  }
  return steps;
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
  Number number{};
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// TensorBoard reads each file up to the first event whose checksum is wrong.
Steps steps_of_events(const std::string& folder) {
  Steps steps;
  constexpr size_t kBefore = 12, kAfter = 4;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder(folder), error)) {
    if (entry.path().filename().string().rfind("events.", 0) != 0) continue;
    const std::string all = read_file(entry.path());
    std::string_view left = all;
    while (left.size() >= kBefore) {
      const auto size = number_at<uint64_t>(left, 0);
      if (size > left.size() || left.size() < kBefore + size + kAfter) break;
      const std::string_view event = left.substr(kBefore, size);
      std::string framed;
      track::append_frame(framed, event);
      if (left.substr(0, framed.size()) != framed) break;
      // Fields: the time, 8 bytes; the step, of one byte here; the values.
      constexpr char kStepField = 2 << 3;
      if (event.find("step_number") != std::string_view::npos && event.size() > 10 && event[9] == kStepField)
        steps.insert(event[10]);
      left.remove_prefix(framed.size());
    }
  }
  return steps;
}

using ReadSteps = Steps (*)(const std::string& folder);

Steps steps_before(int64_t end) {
  Steps steps;
  for (int64_t step = kFirst; step < kFirst + end; step++) steps.insert(step);
  return steps;
}

Contents read_run(const std::string& folder, size_t promised, ReadSteps read) {
  const Steps found = read(folder), all = steps_before(kValuesOfPromise * kPromises);
  const Steps expected = steps_before(kValuesOfPromise * static_cast<int64_t>(promised));
  if (!std::includes(found.begin(), found.end(), expected.begin(), expected.end()))
    return {Found::kLost, "values that were flushed are not readable"};
  return {std::includes(found.begin(), found.end(), all.begin(), all.end()) ? Found::kNew : Found::kOld};
}

Kind kind_of(const std::string& name, const char* tracker, ReadSteps read, bool has_former = false) {
  const bool has_pictures = std::string(tracker) == "jsonl";
  constexpr int64_t kFormer = 1, kNext = 100;
  Kind kind;
  kind.name = "tracker, " + name;
  kind.last_promise = kPromises;
  kind.prepare = [=](const std::string& folder) {
    if (!has_former) return;
    RunningTracker running(folder, tracker);
    running.log(kFormer, has_pictures);
    running.finish();
  };
  kind.write = [=](const std::string& folder) {
    RunningTracker running(folder, tracker);
    for (int64_t i = 0; i < kPromises; i++) {
      for (int64_t j = 0; j < kValuesOfPromise; j++) {
        running.log(kFirst + i * kValuesOfPromise + j, has_pictures);
        RunningTracker::let_write();
      }
      running.flush();
      promise(static_cast<size_t>(i + 1));
    }
    running.finish();
  };
  kind.read = [=](const std::string& folder, size_t promised) {
    if (has_former && read(folder).count(kFormer) == 0) return Contents{Found::kLost, "the former start is lost"};
    return read_run(folder, promised, read);
  };
  kind.go_on = [=](const std::string& folder, size_t promised) -> std::string {
    RunningTracker running(folder, tracker);
    running.log(kNext, has_pictures);
    running.flush();
    running.finish();
    if (read(folder).count(kNext) == 0) return "the run does not go on";
    return read_run(folder, promised, read).found == Found::kLost ? "the run that goes on has lost values" : "";
  };
  return kind;
}

}  // namespace

std::vector<Kind> tracker_files() {
  return {
      kind_of("JSON lines and pictures", "jsonl", steps_of_lines),
      kind_of("comma-separated values", "csv", steps_of_rows),
      kind_of("TensorBoard", "tensorboard", steps_of_events),
      kind_of("JSON lines of a run that goes on", "jsonl", steps_of_lines, true),
      kind_of("comma-separated values of a run that goes on", "csv", steps_of_rows, true),
  };
}

}  // namespace power_cut
