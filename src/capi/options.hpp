// Reading of options structs: the caller's may be older (shorter) or newer (longer) than ours.
#pragma once

#include <cstring>
#include <optional>

#include "accel.h"
#include "base/error.hpp"

namespace accel::capi {

// A full struct of ours: all unset, then overlaid with what the caller gave. `smallest` is the size in the first
// version that had it.
template <typename Options>
Options read_options(const Options* given, const Options& unset, const char* name, size_t smallest = sizeof(Options)) {
  Options result = unset;
  if (given == nullptr) return result;
  const size_t size = given->struct_size;
  require(size >= smallest, Status::kInvalidArgument, name, ".struct_size is ", size, "; expected at least ", smallest,
          ": use its INIT macro");
  require(size <= sizeof(Options), Status::kUnsupported, name, ".struct_size is ", size, ", newer than this library's ",
          sizeof(Options), "; rebuild with its header");
  std::memcpy(&result, given, size);
  result.struct_size = sizeof(Options);
  return result;
}

inline std::optional<bool> option_flag(int32_t value, const char* name) {
  if (value == ACCEL_UNSET) return std::nullopt;
  require(value == 0 || value == 1, Status::kInvalidArgument, name, " is ", value, "; expected 0, 1 or ACCEL_UNSET");
  return value == 1;
}

// A parameter that must be given.
inline bool read_flag(int32_t value, const char* name) {
  require(value == 0 || value == 1, Status::kInvalidArgument, name, " is ", value, "; expected 0 or 1");
  return value == 1;
}

// One of the constants 0 to `last`, which the engine's enumeration has in the same order.
template <typename Enumeration>
std::optional<Enumeration> option_choice(int32_t value, Enumeration last, const char* name) {
  if (value == ACCEL_UNSET) return std::nullopt;
  require(value >= 0 && value <= static_cast<int32_t>(last), Status::kInvalidArgument, name, " is ", value,
          "; expected one of its constants, 0 to ", static_cast<int32_t>(last));
  return static_cast<Enumeration>(value);
}

inline std::optional<int64_t> option_integer(int64_t value) {
  if (value == ACCEL_UNSET_INT64) return std::nullopt;
  return value;
}

inline std::optional<int64_t> option_integer(int32_t value) {
  if (value == ACCEL_UNSET) return std::nullopt;
  return value;
}

inline std::optional<double> option_number(double value) {
  if (value == ACCEL_UNSET_DOUBLE) return std::nullopt;
  return value;
}

}  // namespace accel::capi
