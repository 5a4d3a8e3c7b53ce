// SPDX-License-Identifier: Apache-2.0
#include "comm/record/flight_record.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/current_call.hpp"
#include "comm/communicator.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace flight_record_test {

using tests::messages_of;
using tests::run_ranks;

TEST(FlightRecord, KeepsTheLatestOperations) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const CurrentCall current("accel_reduce");
    at::Tensor tensor = at::zeros({3});
    const int64_t more = static_cast<int64_t>(FlightRecord::kOperations) + 5;
    for (int64_t i = 0; i < more; i++) communicator->all_reduce(tensor, ReduceOp::kSum);
    const auto record = tree::from_json(communicator->flight_record()->to_json(), "the record").toGenericDict();
    EXPECT_EQ(record.at("rank").toInt(), communicator->rank());
    const auto operations = record.at("operations").toListRef();
    ASSERT_EQ(operations.size(), FlightRecord::kOperations);
    const auto last = operations.back().toGenericDict();
    EXPECT_EQ(last.at("call").toStringRef(), "reduce");
    EXPECT_EQ(last.at("operation").toStringRef(), "all_reduce");
    EXPECT_EQ(last.at("sequence").toInt(), more - 1);
    EXPECT_EQ(last.at("bytes").toInt(), 12);
    EXPECT_EQ(last.at("dtype").toStringRef(), "float32");
    EXPECT_EQ(last.at("state").toStringRef(), "done");
  });
}

TEST(FlightRecord, ATimeOutSaysWhereThisRankWasAndWhoDidNotAnswer) {
  const auto messages = messages_of(2, std::chrono::seconds(2), [](Communicator& communicator) {
    communicator.barrier();
    const CurrentCall current("accel_gather");
    if (communicator.rank() == 0) communicator.barrier();
  });
  EXPECT_NE(messages[0].find("rank 0 waits in gather #1: "), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("no answer from rank 1"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("the last operation that ended here was wait_for_everyone #0"), std::string::npos)
      << messages[0];
}

TEST(FlightRecord, ATimeOutWritesItOut) {
  const std::string folder = ::testing::TempDir() + "/accel_flight_record_" + std::to_string(getpid());
  setenv("ACCEL_FLIGHT_RECORD", folder.c_str(), 1);
  messages_of(2, std::chrono::seconds(2), [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 0) communicator.barrier();
  });
  unsetenv("ACCEL_FLIGHT_RECORD");
  const std::string path = folder + "/flight-rank0-of2-pid" + std::to_string(getpid()) + ".json";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto operations = tree::from_json(text, path).toGenericDict().at("operations").toListRef().vec();
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].toGenericDict().at("state").toStringRef(), "done");
  EXPECT_EQ(operations[1].toGenericDict().at("state").toStringRef(), "failed");
  std::filesystem::remove_all(folder);
}

TEST(FlightRecord, TimesAreThoseOfTheClock) {
  const auto now = [] {
    const auto time = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  };
  FlightRecord record(0, 1);
  const auto before = static_cast<double>(now());
  record.end(record.begin("barrier", 7, at::Tensor()), FlightEntry::State::kDone);
  const auto entry =
      tree::from_json(record.to_json(), "the record").toGenericDict().at("operations").toListRef()[0].toGenericDict();
  const auto begun = entry.at("begun_us").toScalar().toDouble();
  const auto ended = entry.at("ended_us").toScalar().toDouble();
  const double slack = 1e6;  // this thread may have been interrupted anywhere
  EXPECT_GE(begun, before - slack);
  EXPECT_LE(begun, ended);
  EXPECT_LE(ended, static_cast<double>(now()) + slack);
}

// Readers see whole entries while another thread writes.
TEST(FlightRecord, CanBeReadAtAnyMoment) {
  FlightRecord record(0, 1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const at::Tensor tensors[] = {at::zeros({1}, at::kByte), at::zeros({2}, at::kShort)};
    for (uint64_t i = 0; !stop; i++)
      record.end(record.begin("all_reduce", i % 2, tensors[i % 2]), FlightEntry::State::kDone);
  });
  for (uint64_t number = 0; number < 20000; number++)
    if (const auto entry = record.find(number)) {
      EXPECT_EQ(entry->sequence, number % 2);
      EXPECT_EQ(entry->bytes, number % 2 == 0 ? 1 : 4);
      EXPECT_EQ(entry->dtype, number % 2 == 0 ? at::kByte : at::kShort);
    }
  stop = true;
  writer.join();
}

}  // namespace flight_record_test
}  // namespace accel::comm
