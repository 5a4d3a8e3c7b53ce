// The latest operations of this rank, for the question of who hangs where. Kept always, so an entry is written without
// a lock, an allocation or a call of the system.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ApproximateClock.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace accel::comm {

struct FlightEntry {
  enum class State : uint8_t { kRunning, kDone, kFailed };

  const char* call = nullptr;       // the function of the C API, null for a call of the engine's own
  const char* operation = nullptr;  // "all_reduce"
  uint64_t sequence = 0;            // as in the transport's messages
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  State state = State::kRunning;
  c10::approx_time_t begun = 0, ended = 0;

  std::string title() const;  // "reduce #12": the call where there is one, else the operation
};

class FlightRecord {
 public:
  static constexpr size_t kOperations = 2000;

  FlightRecord(int rank, int size) : rank_(rank), size_(size) {}

  // Any thread may call any of these at any time. `operation` is a string literal; `tensor` may be undefined. Returns
  // the number that the others take.
  uint64_t begin(const char* operation, uint64_t sequence, const at::Tensor& tensor);
  void end(uint64_t number, FlightEntry::State state);
  // An error that ends the group also goes to the log, and the record into the folder that $ACCEL_FLIGHT_RECORD names.
  void fail(uint64_t number, const std::exception& error);
  void fail(uint64_t number, const std::exception_ptr& error);
  // Nothing when others have taken its place, or take it just now.
  std::optional<FlightEntry> find(uint64_t number) const;
  // The latest entry before this one that succeeded.
  std::optional<FlightEntry> latest_done(uint64_t before) const;

  // One object: rank, size, and the operations from the oldest on. Times are microseconds since 1970.
  std::string to_json() const;
  // One line of the latest few.
  std::string summary() const;

 private:
  // [Note: a slot of the flight record] Its entry is whole when `number` is the same before and after the reading: a
  // writer takes the number away first and puts the new one last. All loads acquire and all stores release, which
  // makes that order hold and costs nothing on x86.
  struct Slot {
    std::atomic<uint64_t> number{kNone};
    std::atomic<const char*> call{nullptr}, operation{nullptr};
    std::atomic<uint64_t> sequence{0};
    std::atomic<int64_t> bytes{0};
    std::atomic<c10::ScalarType> dtype{c10::ScalarType::Undefined};
    std::atomic<c10::approx_time_t> begun{0}, ended{0};
    std::atomic<uint64_t> end{kNone};  // the entry's number with its state, once that is not running
  };
  static constexpr uint64_t kNone = ~uint64_t{0};

  // The entries that are whole, from the oldest on, at most `count` of them.
  std::vector<FlightEntry> latest(uint64_t count) const;
  void write_out();

  const int rank_, size_;
  const std::optional<std::string> folder_ = environment_text("ACCEL_FLIGHT_RECORD");
  const c10::ApproximateClockToUnixTimeConverter clock_;
  std::atomic<uint64_t> count_{0};
  std::atomic<bool> written_{false};  // the first failure tells most
  std::array<Slot, kOperations> slots_;
};

}  // namespace accel::comm
