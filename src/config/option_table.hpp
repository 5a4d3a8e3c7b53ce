// SPDX-License-Identifier: Apache-2.0
// Option tables: the fields of the options structs with what their comments in include/accel.h specify. Written by
// tools/apigen; docs/conventions.md has the form of the comments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel {

enum class OptionKind : uint8_t { kFlag, kInteger, kNumber, kChoice, kText, kObject, kReserved };

struct OptionChoice {
  const char* name;  // "per_batch"
  int32_t value;
};

struct OptionInterval {
  double low, high;
  bool open_low, open_high;

  // Infinities and NaN are inside an interval that is closed at infinity.
  bool contains(double value) const;
  std::string text() const;  // "at least 1", "from 1 to 99", "in (0, 1]"
};

struct OptionTable;

struct OptionField {
  const char* name;
  const char* doc;
  OptionKind kind;
  uint8_t size;                 // bytes: 4 or 8
  uint16_t offset;              // in the struct
  uint16_t meaning_size;        // bytes of `doc` before interval, variable and default
  OptionInterval interval;      // of integers and numbers
  const char* variable;         // environment variable; null: none
  const char* default_value;    // null: determined by the library
  const char* default_words;    // a description of that; otherwise null
  const OptionChoice* choices;  // of a choice
  size_t num_choices;
  bool required;
  const OptionTable* nested = nullptr;  // of a field that is an options struct itself

  std::string_view meaning() const { return {doc, meaning_size}; }
};

struct OptionTable {
  const char* name;  // "accel_adam_options_t"
  size_t size;       // of the struct, whose first member is its size as the application compiled it
  const OptionField* fields;
  size_t num_fields;

  const OptionField* begin() const { return fields; }
  const OptionField* end() const { return fields + num_fields; }
};

struct OptionTables {
  const OptionTable* const* tables;
  size_t size;

  const OptionTable* const* begin() const { return tables; }
  const OptionTable* const* end() const { return tables + size; }
};

// The value of an unset field.
inline constexpr int32_t kUnsetInt32 = std::numeric_limits<int32_t>::min();
inline constexpr int64_t kUnsetInt64 = std::numeric_limits<int64_t>::min();
inline constexpr double kUnsetDouble = std::numeric_limits<double>::lowest();

OptionTables all_option_tables();
// An unknown name is an error with the most similar one.
const OptionTable& find_option_table(std::string_view name);

const char* option_kind_name(OptionKind kind);

bool is_unset(const OptionField& field, const void* options);
// For fields that are set. Flags and choices are integers.
int64_t integer_option(const OptionField& field, const void* options);
double number_option(const OptionField& field, const void* options);
const char* text_option(const OptionField& field, const void* options);
// A flag, integer, number or choice as a number; nothing if it is unset.
std::optional<double> option_value(const OptionField& field, const void* options);
// Checks the value of a flag, integer, number or choice; the error is "NAME is VALUE" and its source (if not empty).
// `given` is the value as it was written.
void check_value(const OptionField& field, double value, std::string_view name, std::string_view given,
                 std::string_view source);
// Checks the value of a field that is set, and that a required one is. `name` is the parameter's.
void check_option(const OptionField& field, const void* options, const char* name);

// Initialises a whole struct: all fields unset, with its size.
std::vector<std::byte> unset_options(const OptionTable& table);

// Reads a struct of the application, which may be of an older and shorter version, or a newer one: fields that this
// version does not know must be unset or 0. `result` is a whole struct with all fields unset.
void read_options(const OptionTable& table, const void* given, const char* name, void* result);
// Checks the options as read_options() does, but has no result.
void check_options(const OptionTable& table, const void* given, const char* name);

}  // namespace accel
