// The latest operations of this rank, for the question of who hangs where. Kept always: an entry costs less than 0.1
// microseconds.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace accel::comm {

struct FlightEntry {
  enum class State : uint8_t { kRunning, kDone, kFailed };
  using Clock = std::chrono::steady_clock;

  const char* call = nullptr;       // the function of the C API, null for a call of the engine's own
  const char* operation = nullptr;  // "all_reduce"
  uint64_t sequence = 0;            // as in the transport's messages
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  State state = State::kRunning;
  Clock::time_point begun, ended;

  std::string title() const;  // "reduce #12": the call where there is one, else the operation
};

class FlightRecord {
 public:
  static constexpr size_t kOperations = 2000;

  // Any thread may call any of these at any time.
  uint64_t begin(const FlightEntry& entry);  // the number that end() takes
  void end(uint64_t number, FlightEntry::State state);
  // The latest entry before this one that succeeded.
  std::optional<FlightEntry> latest_done(uint64_t before) const;

  // One object: rank, size, and the operations from the oldest on. Times are microseconds since 1970.
  std::string to_json(int rank, int size) const;
  // One line of the latest few.
  std::string summary() const;

 private:
  const FlightEntry& entry(uint64_t number) const { return entries_[number % kOperations]; }
  bool holds(uint64_t number) const { return number < count_ && count_ - number <= kOperations; }

  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::array<FlightEntry, kOperations> entries_;
};

}  // namespace accel::comm
