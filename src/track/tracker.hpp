// SPDX-License-Identifier: Apache-2.0
// A tracker, as the program has it in hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "track/record.hpp"
#include "track/record_writer.hpp"

namespace c10 {
struct IValue;
}

namespace accel::track {

// One of this class alone does nothing: it stands for one that runs on another rank.
class Tracker {
 public:
  explicit Tracker(std::string name) : name_(std::move(name)) {}
  virtual ~Tracker() = default;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  const std::string& name() const { return name_; }
  // A file, a folder or an address; empty: none.
  virtual std::string location() const { return ""; }
  // Values for this tracker alone. kInvalidState after its end.
  virtual void log(Record& /*record*/) {}

 private:
  std::string name_;
};

class BuiltInTracker final : public Tracker {
 public:
  BuiltInTracker(std::string name, std::string location, std::shared_ptr<RecordWriter> writer, int destination)
      : Tracker(std::move(name)),
        location_(std::move(location)),
        writer_(std::move(writer)),
        destination_(destination) {}
  std::string location() const override { return location_; }
  void log(Record& record) override {
    record.destination = destination_;
    writer_->add(record);
  }

 private:
  std::string location_;
  std::shared_ptr<RecordWriter> writer_;
  int destination_;
};

// Pinned; the numbers of accel.h.
enum class TrackerEvent : int32_t {
  kStart = 0,
  kConfiguration = 1,
  kValues = 2,
  kImages = 3,
  kTable = 4,
  kFigure = 5,
  kArtifact = 6,
  kFlush = 7,
  kFinish = 8,
};

// A tracker that the program brings.
class ApplicationTracker : public Tracker {
 public:
  using Tracker::Tracker;
  virtual bool main_process_only() const = 0;
  virtual bool requires_logging_directory() const = 0;
  // `content` is null for events without one. Throws Error, whose message names the tracker.
  virtual void receive(TrackerEvent event, const c10::IValue* content, int64_t step) = 0;

  bool is_running() const { return is_running_; }
  void set_running(bool running) { is_running_ = running; }

 private:
  bool is_running_ = false;
};

}  // namespace accel::track
