#include "comm/flight_record.hpp"

#include <algorithm>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "tensor/dtype.hpp"

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

double unix_microseconds(FlightEntry::Clock::time_point time) {
  const auto ago = FlightEntry::Clock::now() - time;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(now - ago).count());
}

Json describe(const FlightEntry& entry) {
  Json node(cJSON_CreateObject());
  cJSON_AddStringToObject(node.get(), "call", std::string(call_name(entry.call, entry.operation)).c_str());
  cJSON_AddStringToObject(node.get(), "operation", entry.operation);
  cJSON_AddNumberToObject(node.get(), "sequence", static_cast<double>(entry.sequence));
  cJSON_AddNumberToObject(node.get(), "bytes", static_cast<double>(entry.bytes));
  if (entry.dtype == c10::ScalarType::Undefined)
    cJSON_AddNullToObject(node.get(), "dtype");
  else
    cJSON_AddStringToObject(node.get(), "dtype", tensor::dtype_name(entry.dtype));
  cJSON_AddStringToObject(node.get(), "state", state_name(entry.state));
  cJSON_AddNumberToObject(node.get(), "begun_us", unix_microseconds(entry.begun));
  if (entry.state == FlightEntry::State::kRunning)
    cJSON_AddNullToObject(node.get(), "ended_us");
  else
    cJSON_AddNumberToObject(node.get(), "ended_us", unix_microseconds(entry.ended));
  return node;
}

}  // namespace

std::string FlightEntry::title() const { return text(call_name(call, operation), " #", sequence); }

uint64_t FlightRecord::begin(const FlightEntry& entry) {
  const auto now = FlightEntry::Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  FlightEntry& place = entries_[count_ % kOperations];
  place = entry;
  place.begun = now;
  return count_++;
}

void FlightRecord::end(uint64_t number, FlightEntry::State state) {
  const auto now = FlightEntry::Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds(number)) return;
  FlightEntry& place = entries_[number % kOperations];
  place.state = state;
  place.ended = now;
}

std::optional<FlightEntry> FlightRecord::latest_done(uint64_t before) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t number = std::min(before, count_); number > 0 && holds(number - 1); number--)
    if (entry(number - 1).state == FlightEntry::State::kDone) return entry(number - 1);
  return std::nullopt;
}

std::string FlightRecord::to_json(int rank, int size) const {
  Json record(cJSON_CreateObject());
  cJSON_AddNumberToObject(record.get(), "rank", rank);
  cJSON_AddNumberToObject(record.get(), "size", size);
  cJSON* const operations = cJSON_AddArrayToObject(record.get(), "operations");
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t number = count_ - std::min<uint64_t>(count_, kOperations); number < count_; number++)
    cJSON_AddItemToArray(operations, describe(entry(number)).release());
  return print_json(record.get());
}

std::string FlightRecord::summary() const {
  constexpr uint64_t kShown = 5;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string line = text(count_, " operations, the latest: ");
  const uint64_t first = count_ - std::min(count_, kShown);
  for (uint64_t number = first; number < count_; number++)
    line += text(number == first ? "" : ", ", entry(number).title(), " ", entry(number).bytes, " bytes ",
                 state_name(entry(number).state));
  return line;
}

}  // namespace accel::comm
