// SPDX-License-Identifier: Apache-2.0
// Where records are written: the part of a built-in tracker that the writing thread has.
#pragma once

#include <cstddef>
#include <string>

#include "json/json.hpp"
#include "track/record.hpp"

namespace accel::track {

// The run, as its trackers receive it.
struct Run {
  std::string project;
  std::string name;
  std::string logging_dir;
  std::string folder;  // of the run; empty without logging_dir
  std::string host;
  std::string version;  // of this library
  int rank = 0;
  int world_size = 1;
  bool resumed = false;
};

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual std::string location() const = 0;
  // Into memory.
  virtual void write(const Record& record) = 0;
  // Throws kIo; what could not be written stays in memory, for the next try.
  virtual void flush(bool durable) = 0;
  virtual size_t pending_bytes() const = 0;
  // The last records of a run, in memory too. A run that is released did not say that it is finished.
  virtual void end(bool finished) = 0;
};

}  // namespace accel::track
