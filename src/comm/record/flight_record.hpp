// SPDX-License-Identifier: Apache-2.0
// Flight recorder: the latest operations of this rank, to find out which rank hangs where. It always records, so an
// entry is written without a lock, an allocation or a system call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/tick_clock.hpp"

namespace accel::comm {

struct FlightEntry {
  enum class State : uint8_t { kRunning, kDone, kFailed };

  const char* call = nullptr;       // the function of the C API; null for calls of the engine itself
  const char* operation = nullptr;  // "all_reduce"
  uint64_t sequence = 0;            // as in the transport's messages
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  State state = State::kRunning;
  uint64_t begun = 0, ended = 0;  // ticks

  std::string title() const;  // "reduce #12": the call if there is one, otherwise the operation
};

class FlightRecord {
 public:
  static constexpr size_t kOperations = 2000;

  FlightRecord(int rank, int size) : rank_(rank), size_(size) {}

  // Names the group: its ranks use the same name, and no other group does. Called before anything is recorded.
  void set_group(std::string group) { group_ = std::move(group); }
  const std::string& group() const { return group_; }

  // Any thread may call any of these at any time. `operation` is a string literal; `tensor` may be undefined. Returns
  // the number of the entry, for the other functions.
  uint64_t begin(const char* operation, uint64_t sequence, const at::Tensor& tensor);
  void end(uint64_t number, FlightEntry::State state);
  // An error that ends the group is also logged, and the record is written to the folder $ACCEL_FLIGHT_RECORD.
  void fail(uint64_t number, const std::exception& error);
  void fail(uint64_t number, const std::exception_ptr& error);
  // Nothing if the entry is overwritten, or being overwritten.
  std::optional<FlightEntry> find(uint64_t number) const;
  // The latest entry before this one that succeeded.
  std::optional<FlightEntry> latest_done(uint64_t before) const;

  // One object: rank, size, and the operations from the oldest on. Times are microseconds since 1970.
  std::string to_json() const;
  // One line of the latest few.
  std::string summary() const;

 private:
  // [Note: a slot of the flight record] A sequence lock: the entry is consistent if `number` is the same before and
  // after reading it, as a writer clears the number first and sets the new one last. All loads acquire and all stores
  // release, which guarantees that order and costs nothing on x86.
  struct Slot {
    std::atomic<uint64_t> number{kNone};
    std::atomic<const char*> call{nullptr}, operation{nullptr};
    std::atomic<uint64_t> sequence{0};
    std::atomic<int64_t> bytes{0};
    std::atomic<c10::ScalarType> dtype{c10::ScalarType::Undefined};
    std::atomic<uint64_t> begun{0}, ended{0};
    std::atomic<uint64_t> end{kNone};  // the entry's number with its final state
  };
  static constexpr uint64_t kNone = ~uint64_t{0};

  // The consistent entries, the oldest first, at most `count`.
  std::vector<FlightEntry> latest(uint64_t count) const;
  void write_out();

  // For traces.
  void add_span(const FlightEntry& entry) const noexcept;

  const int rank_, size_;
  std::string group_ = "world";
  const std::optional<std::string> folder_ = environment_text("ACCEL_FLIGHT_RECORD");
  const TickClock clock_;
  std::atomic<uint64_t> count_{0};
  std::atomic<bool> written_{false};  // only the first failure is written
  std::array<Slot, kOperations> slots_;
};

}  // namespace accel::comm
