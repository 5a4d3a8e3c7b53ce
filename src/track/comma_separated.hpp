// SPDX-License-Identifier: Apache-2.0
// The tracker "csv": metrics.csv, a row a step. Values of one step that come within one interval share a row.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "track/appended_file.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class CommaSeparated final : public RecordSink {
 public:
  explicit CommaSeparated(const Run& run);
  std::string location() const override { return file_.path(); }
  void write(const Record& record) override;
  void flush(bool durable) override;
  size_t pending_bytes() const override { return file_.pending_bytes() + row_bytes_ + configuration_.size(); }
  void end(bool /*finished*/) override {}

 private:
  struct Row {
    int64_t step;
    double time;
    std::vector<std::pair<size_t, std::string>> fields;  // column and text
  };

  size_t column_of(std::string_view name);
  std::string header() const;
  void read_columns();
  // Makes the file again with the columns that were added.
  void widen_file();
  void append_row(const Row& row);

  std::string folder_;
  AppendedFile file_;
  std::vector<std::string> columns_;
  std::map<std::string, size_t, std::less<>> numbers_;  // of the columns
  size_t file_columns_ = 0;                             // that the file has
  std::vector<Row> rows_;
  size_t row_bytes_ = 0;
  std::string configuration_;  // that is not written yet
};

}  // namespace accel::track
