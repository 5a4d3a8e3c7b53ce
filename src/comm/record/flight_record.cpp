// SPDX-License-Identifier: Apache-2.0
#include "comm/record/flight_record.hpp"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/collective_error.hpp"
#include "json/json.hpp"
#include "tensor/dtype.hpp"
#include "trace/span.hpp"

namespace accel::comm {
namespace {

const char* state_name(FlightEntry::State state) {
  switch (state) {
    case FlightEntry::State::kRunning:
      return "running";
    case FlightEntry::State::kDone:
      return "done";
    case FlightEntry::State::kFailed:
      return "failed";
  }
  return "";
}

Json describe(const FlightEntry& entry, const TickClock::Converter& to_unix) {
  const auto microseconds = [&](uint64_t time) { return Json::number(int64_t{to_unix(time) / 1000}); };
  Json::Members node;
  node.emplace_back("call", std::string(call_name(entry.call, entry.operation)));
  node.emplace_back("operation", entry.operation);
  node.emplace_back("sequence", Json::number(static_cast<int64_t>(entry.sequence)));
  node.emplace_back("bytes", Json::number(static_cast<int64_t>(entry.bytes)));
  const bool has_dtype = entry.dtype != c10::ScalarType::Undefined;
  node.emplace_back("dtype", has_dtype ? Json(tensor::dtype_name(entry.dtype)) : Json());
  node.emplace_back("state", state_name(entry.state));
  node.emplace_back("begun_us", microseconds(entry.begun));
  const bool has_ended = entry.state != FlightEntry::State::kRunning;
  node.emplace_back("ended_us", has_ended ? microseconds(entry.ended) : Json());
  return Json(std::move(node));
}

constexpr uint64_t ending(uint64_t number, FlightEntry::State state) {
  return number << 2 | static_cast<uint64_t>(state);
}

// Whether the group has failed with it.
bool ends_group(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const CollectiveError*>(&error)) return !group_survives(failure->failure());
  return dynamic_cast<const c10::DistError*>(&error) != nullptr;
}

}  // namespace

std::string FlightEntry::title() const { return text(call_name(call, operation), " #", sequence); }

// Two writers share a slot only if kOperations begin while one of them writes its entry.
uint64_t FlightRecord::begin(const char* operation, uint64_t sequence, const at::Tensor& tensor) {
  constexpr auto kRelease = std::memory_order_release;
  const uint64_t number = count_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[number % kOperations];
  slot.number.store(kNone, std::memory_order_relaxed);
  slot.call.store(CurrentCall::function(), kRelease);
  slot.operation.store(operation, kRelease);
  slot.sequence.store(sequence, kRelease);
  slot.bytes.store(tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0, kRelease);
  slot.dtype.store(tensor.defined() ? tensor.scalar_type() : c10::ScalarType::Undefined, kRelease);
  slot.begun.store(ticks(), kRelease);
  slot.number.store(number, kRelease);
  return number;
}

void FlightRecord::end(uint64_t number, FlightEntry::State state) {
  Slot& slot = slots_[number % kOperations];
  if (slot.number.load(std::memory_order_relaxed) != number) return;
  slot.ended.store(ticks(), std::memory_order_release);
  const uint64_t former = slot.end.exchange(ending(number, state), std::memory_order_acq_rel);
  if (former >> 2 == number) return;  // a waiter and the callback of an end both say it
  if (!Spans::are_recorded()) return;
  if (const auto entry = find(number)) add_span(*entry);
}

void FlightRecord::add_span(const FlightEntry& entry) const noexcept {
  try {
    SpanRecord span;
    span.kind = SpanKind::kCollective;
    span.name = entry.operation;
    span.begun = entry.begun;
    span.ended = entry.ended;
    span.bytes = entry.bytes;
    span.ranks = size_;
    span.group = group_;
    span.sequence = entry.sequence;
    Spans::add(std::move(span));
  } catch (const std::exception&) {
    // No memory for a trace: the collective has ended all the same.
  }
}

std::optional<FlightEntry> FlightRecord::find(uint64_t number) const {
  constexpr auto kAcquire = std::memory_order_acquire;
  const Slot& slot = slots_[number % kOperations];
  if (slot.number.load(kAcquire) != number) return std::nullopt;
  FlightEntry entry;
  entry.call = slot.call.load(kAcquire);
  entry.operation = slot.operation.load(kAcquire);
  entry.sequence = slot.sequence.load(kAcquire);
  entry.bytes = slot.bytes.load(kAcquire);
  entry.dtype = slot.dtype.load(kAcquire);
  entry.begun = slot.begun.load(kAcquire);
  const uint64_t end = slot.end.load(kAcquire);
  entry.ended = slot.ended.load(kAcquire);
  if (slot.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  for (const auto state : {FlightEntry::State::kDone, FlightEntry::State::kFailed})
    if (end == ending(number, state)) entry.state = state;
  return entry;
}

std::optional<FlightEntry> FlightRecord::latest_done(uint64_t before) const {
  const uint64_t count = count_.load(), end = std::min(before, count);
  const uint64_t oldest = count - std::min<uint64_t>(count, kOperations);
  for (uint64_t number = end; number > oldest; number--) {
    auto entry = find(number - 1);
    if (entry && entry->state == FlightEntry::State::kDone) return entry;
  }
  return std::nullopt;
}

std::vector<FlightEntry> FlightRecord::latest(uint64_t count) const {
  const uint64_t end = count_.load();
  std::vector<FlightEntry> entries;
  for (uint64_t number = end - std::min(end, count); number < end; number++)
    if (const auto entry = find(number)) entries.push_back(*entry);
  return entries;
}

std::string FlightRecord::to_json() const {
  Json::Items operations;
  const TickClock::Converter to_unix = clock_.converter();
  for (const FlightEntry& entry : latest(kOperations)) operations.push_back(describe(entry, to_unix));
  Json::Members record;
  record.emplace_back("rank", Json::number(int64_t{rank_}));
  record.emplace_back("size", Json::number(int64_t{size_}));
  record.emplace_back("operations", std::move(operations));
  return print_json(Json(std::move(record)));
}

std::string FlightRecord::summary() const {
  constexpr uint64_t kShown = 5;
  std::string line;
  for (const FlightEntry& entry : latest(kShown))
    line += text(line.empty() ? "" : ", ", entry.title(), " ", entry.bytes, " bytes ", state_name(entry.state));
  return text(count_.load(), " operations, the latest: ", line);
}

void FlightRecord::fail(uint64_t number, const std::exception& error) {
  end(number, FlightEntry::State::kFailed);
  if (!ends_group(error) || written_.exchange(true)) return;
  try {
    log(LogLevel::kError, "rank ", rank_, " of ", size_, ": ", error.what(), "; ", summary());
    if (folder_) write_out();
  } catch (const std::exception&) {
    // No memory for the message; the wait for the operation still reports the error.
  }
}

void FlightRecord::fail(uint64_t number, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    fail(number, failure);
  } catch (...) {
    end(number, FlightEntry::State::kFailed);
  }
}

void FlightRecord::write_out() {
  std::error_code error;
  std::filesystem::create_directories(*folder_, error);  // what is wrong with it shows below
  const std::string path = text(*folder_, "/flight-rank", rank_, "-of", size_, "-pid", getpid(), ".json");
  std::ofstream file(path);
  file << to_json() << "\n";
  file.close();
  if (file)
    log(LogLevel::kError, "the flight record is in ", path);
  else
    log(LogLevel::kError, "the flight record cannot be written to ", path,
        "; ACCEL_FLIGHT_RECORD must name a folder that is writable");
}

}  // namespace accel::comm
