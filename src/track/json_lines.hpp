// SPDX-License-Identifier: Apache-2.0
// The tracker "jsonl": metrics.jsonl, an object a line, which `accel report` reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "json/json_writer.hpp"
#include "track/appended_file.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class JsonLines final : public RecordSink {
 public:
  explicit JsonLines(Run run);
  std::string location() const override { return file_.path(); }
  void write(const Record& record) override;
  void flush(bool durable) override;
  size_t pending_bytes() const override;
  void end(bool finished) override;

 private:
  struct SideFile {
    std::string path;
    std::string bytes;
    std::string copied_from;  // instead of bytes
  };

  void write_run();
  void write_values(const Record& record);
  void write_histogram(const Record& record, const Record::Value& value);
  void write_picture(const char* type, const Record& record, const Picture& picture);
  void write_side_files();
  void sync_side_files();
  JsonWriter begin_line(const char* type, double time);
  void end_line(JsonWriter& line);

  Run run_;
  AppendedFile file_;
  std::vector<SideFile> side_files_;     // which are written before the lines that name them
  std::vector<std::string> not_synced_;  // paths of those that are written
};

}  // namespace accel::track
