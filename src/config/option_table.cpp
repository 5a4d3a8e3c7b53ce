// SPDX-License-Identifier: Apache-2.0
#include "config/option_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

template <typename T>
T read_as(const OptionField& field, const void* options) {
  T value;
  std::memcpy(&value, static_cast<const char*>(options) + field.offset, sizeof value);
  return value;
}

void unset(const OptionField& field, void* options) {
  const auto write = [&](auto value) { std::memcpy(static_cast<char*>(options) + field.offset, &value, sizeof value); };
  if (field.kind == OptionKind::kNumber) return write(kUnsetDouble);
  if (field.kind == OptionKind::kText || field.kind == OptionKind::kObject) return write(static_cast<void*>(nullptr));
  if (field.kind == OptionKind::kReserved) return write(int32_t{0});
  field.size == sizeof(int32_t) ? write(kUnsetInt32) : write(kUnsetInt64);
}

std::string choices_text(const OptionField& field) {
  std::string known;
  for (size_t i = 0; i < field.num_choices; ++i)
    known += text(i == 0 ? "" : ", ", field.choices[i].name, " (", field.choices[i].value, ")");
  return known;
}

// For a field that this version does not know: the unset value of any type, or 0.
bool says_nothing(const char* bytes, size_t size) {
  const auto is = [bytes](size_t place, auto value) {
    decltype(value) found;
    std::memcpy(&found, bytes + place, sizeof found);
    return found == value;
  };
  for (size_t place = 0; place < size; place += sizeof(int32_t)) {
    if (size - place >= sizeof(int64_t) && (is(place, kUnsetInt64) || is(place, kUnsetDouble)))
      place += sizeof(int32_t);
    else if (size - place < sizeof(int32_t) || !(is(place, kUnsetInt32) || is(place, int32_t{0})))
      return false;
  }
  return true;
}

}  // namespace

bool OptionInterval::contains(double value) const {
  if (std::isnan(value)) return std::isinf(low) && !open_low;
  return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
}

std::string OptionInterval::text() const {
  const bool from = std::isfinite(low), to = std::isfinite(high);
  if (!from && !to) return open_low ? "finite" : "any";
  if (!to) return accel::text(open_low ? "above " : "at least ", low);
  if (!from) return accel::text(open_high ? "below " : "at most ", high);
  if (!open_low && !open_high) return accel::text("from ", low, " to ", high);
  return accel::text("in ", open_low ? '(' : '[', low, ", ", high, open_high ? ')' : ']');
}

const OptionTable& find_option_table(std::string_view name) {
  std::string_view nearest;
  for (const OptionTable* const table : all_option_tables()) {
    if (name == table->name) return *table;
    if (nearest.empty() || edit_distance(name, table->name) < edit_distance(name, nearest)) nearest = table->name;
  }
  fail(Status::kNotFound, "there is no options struct '", name, "'; the nearest name is ", nearest);
}

const char* option_kind_name(OptionKind kind) {
  constexpr const char* kNames[] = {"flag", "integer", "number", "choice", "text", "object", "reserved"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t integer_option(const OptionField& field, const void* options) {
  return field.size == sizeof(int32_t) ? read_as<int32_t>(field, options) : read_as<int64_t>(field, options);
}
double number_option(const OptionField& field, const void* options) { return read_as<double>(field, options); }
const char* text_option(const OptionField& field, const void* options) { return read_as<const char*>(field, options); }

bool is_unset(const OptionField& field, const void* options) {
  switch (field.kind) {
    case OptionKind::kNumber:
      return number_option(field, options) == kUnsetDouble;
    case OptionKind::kText:
    case OptionKind::kObject:
      return read_as<const void*>(field, options) == nullptr;
    case OptionKind::kReserved:
      return integer_option(field, options) == 0;
    default:
      return integer_option(field, options) == (field.size == sizeof(int32_t) ? kUnsetInt32 : kUnsetInt64);
  }
}

std::optional<double> option_value(const OptionField& field, const void* options) {
  if (is_unset(field, options)) return std::nullopt;
  if (field.kind == OptionKind::kNumber) return number_option(field, options);
  return static_cast<double>(integer_option(field, options));
}

namespace {

// The expected values; empty if the field can have any value.
std::string expectation(const OptionField& field, double value) {
  switch (field.kind) {
    case OptionKind::kFlag:
      return value == 0 || value == 1 ? "" : "0, 1 or ACCEL_UNSET";
    case OptionKind::kInteger:
    case OptionKind::kNumber:
      return field.interval.contains(value) ? "" : field.interval.text();
    case OptionKind::kChoice: {
      const OptionChoice* const end = field.choices + field.num_choices;
      const bool is_known =
          std::any_of(field.choices, end, [value](const auto& choice) { return choice.value == value; });
      return is_known ? "" : text("one of ", choices_text(field));
    }
    case OptionKind::kReserved:
      return value == 0 ? "" : "0";
    default:
      return "";
  }
}

}  // namespace

void check_value(const OptionField& field, double value, std::string_view name, std::string_view given,
                 std::string_view source) {
  const std::string expected = expectation(field, value);
  if (expected.empty()) return;
  fail(Status::kInvalidArgument, name, " is ", given, source.empty() ? "" : " (from ", source,
       source.empty() ? "" : ")", "; expected ", expected);
}

void check_option(const OptionField& field, const void* options, const char* name) {
  if (is_unset(field, options)) {
    if (field.required) fail(Status::kInvalidArgument, name, ".", field.name, " is unset; it must be given");
    return;
  }
  if (field.kind == OptionKind::kText || field.kind == OptionKind::kObject) return;
  const bool is_number = field.kind == OptionKind::kNumber;
  const double value = is_number ? number_option(field, options) : static_cast<double>(integer_option(field, options));
  if (expectation(field, value).empty()) return;
  // If there is also a variable for it.
  check_value(field, value, text(name, ".", field.name), is_number ? text(value) : text(integer_option(field, options)),
              field.variable == nullptr ? "" : "call");
}

std::vector<std::byte> unset_options(const OptionTable& table) {
  std::vector<std::byte> whole(table.size);
  std::memcpy(whole.data(), &table.size, sizeof table.size);
  for (const OptionField& field : table) unset(field, whole.data());
  return whole;
}

void read_options(const OptionTable& table, const void* given, const char* name, void* result) {
  if (given == nullptr) {
    for (const OptionField& field : table) check_option(field, result, name);
    return;
  }
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  const size_t smallest = table.fields[0].offset + size_t{table.fields[0].size};
  constexpr size_t kLargest = 64 * 1024;  // what is larger was never set
  require(size >= smallest && size <= kLargest, Status::kInvalidArgument, name, ".struct_size is ", size,
          "; expected the size of ", table.name, ": begin with its INIT macro");
  for (const OptionField& field : table)
    require(size <= field.offset || size >= field.offset + size_t{field.size}, Status::kInvalidArgument, name,
            ".struct_size is ", size, ", which ends within ", field.name, "; expected that of a version of ",
            table.name);
  if (size > table.size && !says_nothing(static_cast<const char*>(given) + table.size, size - table.size))
    fail(Status::kUnsupported, name, ".struct_size is ", size, ", newer than this library's ", table.size,
         ", and a field that it does not know is set; unset it, or use a newer library");
  std::memcpy(result, given, std::min(size, table.size));
  std::memcpy(result, &table.size, sizeof table.size);
  for (const OptionField& field : table) check_option(field, result, name);
}

void check_options(const OptionTable& table, const void* given, const char* name) {
  std::vector<std::byte> whole = unset_options(table);
  read_options(table, given, name, whole.data());
}

}  // namespace accel
