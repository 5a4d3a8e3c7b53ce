// SPDX-License-Identifier: Apache-2.0
#include "track/record_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "os/background_thread.hpp"

namespace accel::track {
namespace {

constexpr size_t kWakeBytes = size_t{1} << 20;   // earlier than the interval
constexpr size_t kKeptBytes = size_t{64} << 10;  // of a record that is used again
constexpr std::chrono::seconds kLongestWait(60), kLongestWaitAtExit(10);

// Writers that have not ended. Programs that return from main() without a word keep what they logged.
struct LiveWriters {
  std::mutex mutex;
  std::vector<RecordWriter*> all;
  bool is_registered = false;
};

LiveWriters& live_writers() {
  static LiveWriters* const instance = std::make_unique<LiveWriters>().release();
  return *instance;
}

void release_writers_at_exit() {
  LiveWriters& live = live_writers();
  const std::lock_guard<std::mutex> lock(live.mutex);
  for (RecordWriter* const writer : live.all) writer->release_at_exit(kLongestWaitAtExit);
}

}  // namespace

RecordWriter::RecordWriter(std::vector<NamedSink> sinks, std::chrono::milliseconds interval, size_t most_bytes)
    : sinks_(std::move(sinks)), interval_(interval), most_bytes_(most_bytes), owner_(::getpid()) {
  LiveWriters& live = live_writers();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.all.push_back(this);
  try {
    thread_ = background_thread("accel-trackers", [this] { run(); });
  } catch (...) {
    live.all.pop_back();
    throw;
  }
  if (!live.is_registered) live.is_registered = std::atexit(release_writers_at_exit) == 0;
}

RecordWriter::~RecordWriter() {
  {
    LiveWriters& live = live_writers();
    const std::lock_guard<std::mutex> lock(live.mutex);
    live.all.erase(std::remove(live.all.begin(), live.all.end(), this), live.all.end());
  }
  try {
    finish(/*finished=*/false);
  } catch (const std::exception&) {  // the owner ends it before, and gets the error
  }
}

void RecordWriter::add(const Record& record) {
  std::unique_lock<std::mutex> lock(mutex_);
  require(!is_ended_, Status::kInvalidState, "the trackers have ended; call accel_init_trackers()");
  const size_t bytes = record.bytes();
  const auto has_room = [&] {
    return waiting_bytes_ + pending_bytes_ + bytes <= most_bytes_ || (n_waiting_ == 0 && pending_bytes_ == 0);
  };
  if (!has_room() && failure_.empty()) {
    wake_.notify_one();
    written_.wait_for(lock, kLongestWait, [&] { return has_room() || !failure_.empty(); });
  }
  require(has_room(), Status::kIo, failure_.empty() ? "the disk is too slow" : failure_, "; ",
          waiting_bytes_ + pending_bytes_, " bytes wait, queue_bytes is ", most_bytes_,
          ": the values of this call are lost");
  if (n_waiting_ == waiting_.size()) waiting_.emplace_back();
  waiting_[n_waiting_] = record;
  n_waiting_++;
  const bool was_below = waiting_bytes_ < kWakeBytes;
  waiting_bytes_ += bytes;
  if (was_below && waiting_bytes_ >= kWakeBytes) wake_.notify_one();
  require(failure_.empty(), Status::kIo, failure_);
}

// A forked process has the object, and not the thread.
bool RecordWriter::is_of_this_process() const { return ::getpid() == owner_; }

void RecordWriter::wait_for(Command command, std::chrono::seconds longest_wait) {
  if (!is_of_this_process()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  if (is_ended_) return;
  const int64_t before = n_done_;
  command_ = command;
  if (command != Command::kFlush) is_ended_ = true;
  wake_.notify_one();
  const bool is_done = written_.wait_for(lock, longest_wait, [&] { return n_done_ != before; });
  require(is_done, Status::kIo, "the trackers did not write within ", longest_wait.count(), " s");
  require(failure_.empty(), Status::kIo, failure_);
}

void RecordWriter::flush() { wait_for(Command::kFlush, kLongestWait); }

void RecordWriter::finish(bool finished) {
  const auto end_thread = [this](std::thread* thread) {
    if (!thread->joinable()) return;
    if (is_of_this_process())
      thread->join();
    else
      thread->detach();
  };
  const std::unique_ptr<std::thread, decltype(end_thread)> ended(&thread_, end_thread);
  wait_for(finished ? Command::kFinish : Command::kRelease, kLongestWait);
}

void RecordWriter::release_at_exit(std::chrono::seconds longest_wait) {
  try {
    wait_for(Command::kRelease, longest_wait);
  } catch (const std::exception&) {  // nobody is left to receive it
  }
}

// Each is tried, whatever becomes of the others.
void RecordWriter::flush_sinks(bool durable, std::string failure) {
  size_t pending = 0;
  for (const NamedSink& named : sinks_) {
    try {
      named.sink->flush(durable);
    } catch (const std::exception& error) {
      if (failure.empty()) failure = text("tracker '", named.name, "' cannot write: ", error.what());
    }
    pending += named.sink->pending_bytes();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_ = std::move(failure);
  pending_bytes_ = pending;
}

void RecordWriter::write_taken(size_t count, Command command) {
  std::string failure;
  for (size_t i = 0; i < count; i++) {
    Record& record = taken_[i];
    for (size_t at = 0; at < sinks_.size(); at++) {
      if (record.destination >= 0 && static_cast<size_t>(record.destination) != at) continue;
      try {
        sinks_[at].sink->write(record);
      } catch (const std::exception& error) {
        if (failure.empty()) failure = text("tracker '", sinks_[at].name, "' lost values: ", error.what());
      }
    }
    if (record.bytes() > kKeptBytes) record = Record();
  }
  if (command == Command::kFinish || command == Command::kRelease)
    for (const NamedSink& sink : sinks_) sink.sink->end(command == Command::kFinish);
  flush_sinks(/*durable=*/command != Command::kNone, std::move(failure));
}

void RecordWriter::run() {
  for (bool goes_on = true; goes_on;) {
    Command command = Command::kNone;
    size_t count = 0;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, interval_, [&] { return command_ != Command::kNone || waiting_bytes_ >= kWakeBytes; });
      command = std::exchange(command_, Command::kNone);
      std::swap(waiting_, taken_);
      count = std::exchange(n_waiting_, 0);
      waiting_bytes_ = 0;
    }
    try {
      write_taken(count, command);
    } catch (const std::exception& error) {  // a lack of memory
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = error.what();
    }
    goes_on = command != Command::kFinish && command != Command::kRelease;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (command != Command::kNone) n_done_++;
    written_.notify_all();
  }
}

}  // namespace accel::track
