// SPDX-License-Identifier: Apache-2.0
// The thread that writes records to sinks. Callers only copy: two lists change places, so that neither is allocated
// again.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "track/record.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class RecordWriter {
 public:
  struct NamedSink {
    std::string name;
    std::unique_ptr<RecordSink> sink;
  };

  RecordWriter(std::vector<NamedSink> sinks, std::chrono::milliseconds interval, size_t most_bytes);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Waits while too much waits to be written. kIo while a sink cannot write, kInvalidState after the end.
  void add(const Record& record);
  // Until everything before is written; throws kIo.
  void flush();
  // Writes everything, and ends the sinks and the thread. Throws kIo; later calls do nothing.
  void finish(bool finished);
  // Finishes at the exit of the process what nobody ended, within the time.
  void release_at_exit(std::chrono::seconds longest_wait);

 private:
  enum class Command { kNone, kFlush, kFinish, kRelease };

  void run();
  void write_taken(size_t count, Command command);
  void flush_sinks(bool durable, std::string failure);
  void wait_for(Command command, std::chrono::seconds longest_wait);
  bool is_of_this_process() const;

  std::vector<NamedSink> sinks_;
  const std::chrono::milliseconds interval_;
  const size_t most_bytes_;
  const pid_t owner_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable written_;
  std::vector<Record> waiting_;  // the first n_waiting_ of them
  size_t n_waiting_ = 0;
  size_t waiting_bytes_ = 0;
  size_t pending_bytes_ = 0;  // that sinks could not write
  std::string failure_;       // of the latest try; empty: none
  Command command_ = Command::kNone;
  int64_t n_done_ = 0;  // commands
  bool is_ended_ = false;
  std::vector<Record> taken_;  // of the thread
  std::thread thread_;
};

}  // namespace accel::track
