// SPDX-License-Identifier: Apache-2.0
#include "track/record_writer.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "expect_error.hpp"

namespace accel::track {
namespace {

constexpr std::chrono::hours kNever(1);
constexpr size_t kMuch = size_t{1} << 26;

struct Written {
  std::atomic<bool> disk_is_full{false};
  std::atomic<int64_t> records{0};
  std::atomic<int> ended{0};  // 1: finished, 2: released
};

// Keeps what it gets until it is flushed, as one that writes to a file does.
class CountingSink final : public RecordSink {
 public:
  explicit CountingSink(std::shared_ptr<Written> written) : written_(std::move(written)) {}
  std::string location() const override { return "nowhere"; }
  void write(const Record& record) override {
    waiting_ += record.bytes();
    count_++;
  }
  void flush(bool /*durable*/) override {
    require(!written_->disk_is_full, Status::kIo, "the disk is full");
    written_->records += count_;
    count_ = 0;
    waiting_ = 0;
  }
  size_t pending_bytes() const override { return waiting_; }
  void end(bool finished) override { written_->ended = finished ? 1 : 2; }

 private:
  std::shared_ptr<Written> written_;
  int64_t count_ = 0;
  size_t waiting_ = 0;
};

std::unique_ptr<RecordWriter> new_writer(const std::shared_ptr<Written>& written, std::chrono::milliseconds interval,
                                         size_t most_bytes) {
  std::vector<RecordWriter::NamedSink> sinks;
  sinks.push_back({"counting", std::make_unique<CountingSink>(written)});
  return std::make_unique<RecordWriter>(std::move(sinks), interval, most_bytes);
}

Record some_record() {
  Record record;
  record.add_number("loss", 1);
  return record;
}

TEST(RecordWriter, FlushWritesWhatWaits) {
  const auto written = std::make_shared<Written>();
  const auto writer = new_writer(written, kNever, kMuch);
  for (int i = 0; i < 1000; i++) writer->add(some_record());
  writer->flush();
  EXPECT_EQ(written->records, 1000);
  EXPECT_EQ(written->ended, 0);
  writer->add(some_record());
  writer->finish(true);
  EXPECT_EQ(written->records, 1001);
  EXPECT_EQ(written->ended, 1);
  tests::expect_error(Status::kInvalidState, "have ended", [&] { writer->add(some_record()); });
  writer->flush();
  writer->finish(true);
}

TEST(RecordWriter, TheIntervalWritesByItself) {
  const auto written = std::make_shared<Written>();
  const auto writer = new_writer(written, std::chrono::milliseconds(1), kMuch);
  writer->add(some_record());
  for (int i = 0; written->records == 0 && i < 10000; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(written->records, 1);
}

TEST(RecordWriter, MuchIsWrittenBeforeTheInterval) {
  const auto written = std::make_shared<Written>();
  const auto writer = new_writer(written, kNever, size_t{1} << 21);
  constexpr int kMany = 200000;  // ten times what may wait
  for (int i = 0; i < kMany; i++) writer->add(some_record());
  writer->finish(false);
  EXPECT_EQ(written->records, kMany);
  EXPECT_EQ(written->ended, 2);
}

TEST(RecordWriter, AFullDiskIsAnErrorUntilThereIsRoom) {
  const auto written = std::make_shared<Written>();
  const auto writer = new_writer(written, kNever, 65536);
  written->disk_is_full = true;
  writer->add(some_record());
  tests::expect_error(Status::kIo, "tracker 'counting' cannot write: the disk is full", [&] { writer->flush(); });
  int64_t kept = 1;
  tests::expect_error(Status::kIo, "the values of this call are lost", [&] {
    for (;; kept++) try {
        writer->add(some_record());
      } catch (const Error& error) {  // they are kept as long as there is room
        if (error.message().find("lost") != std::string::npos) throw;
      }
  });
  EXPECT_GT(kept, 100);
  written->disk_is_full = false;
  writer->flush();
  EXPECT_EQ(written->records, kept);
  writer->add(some_record());
  writer->finish(true);
  EXPECT_EQ(written->records, kept + 1);
}

TEST(RecordWriter, WhatHasNoOwnerAnyMoreIsWritten) {
  const auto written = std::make_shared<Written>();
  new_writer(written, kNever, kMuch)->add(some_record());
  EXPECT_EQ(written->records, 1);
  EXPECT_EQ(written->ended, 2);
}

}  // namespace
}  // namespace accel::track
