// What the comments of include/accel.h say of the fields of its options structs. tools/apigen writes the tables; see
// docs/conventions.md for the form of the comments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace accel {

enum class OptionKind : uint8_t { kFlag, kInteger, kNumber, kChoice, kText, kObject, kReserved };

struct OptionChoice {
  const char* name;  // "per_batch"
  int32_t value;
};

struct OptionInterval {
  double low, high;
  bool open_low, open_high;

  // Infinities and NaN are within an interval that is closed by infinity.
  bool contains(double value) const;
  std::string text() const;  // "at least 1", "from 1 to 99", "in (0, 1]"
};

struct OptionField {
  const char* name;
  const char* doc;
  OptionKind kind;
  uint8_t size;                 // bytes: 4 or 8
  uint16_t offset;              // in the struct
  uint16_t meaning_size;        // bytes of `doc` before interval, variable and default
  OptionInterval interval;      // of integers and numbers
  const char* variable;         // of the environment; null: none
  const char* default_value;    // null: the library finds it
  const char* default_words;    // and how it does; else null
  const OptionChoice* choices;  // of a choice
  size_t num_choices;
  bool required;

  std::string_view meaning() const { return {doc, meaning_size}; }
};

struct OptionTable {
  const char* name;  // "accel_adam_options_t"
  size_t size;       // of the struct, whose first member is its size as the program knows it
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

// What a field holds that was not given.
inline constexpr int32_t kUnsetInt32 = std::numeric_limits<int32_t>::min();
inline constexpr int64_t kUnsetInt64 = std::numeric_limits<int64_t>::min();
inline constexpr double kUnsetDouble = std::numeric_limits<double>::lowest();

OptionTables all_option_tables();
// An unknown name is an error that says the nearest one.
const OptionTable& find_option_table(std::string_view name);

const char* option_kind_name(OptionKind kind);

bool is_unset(const OptionField& field, const void* options);
// Of fields that are given. Flags and choices are integers.
int64_t integer_option(const OptionField& field, const void* options);
double number_option(const OptionField& field, const void* options);
const char* text_option(const OptionField& field, const void* options);
// A flag, integer, number or choice as a number; nothing when it is unset.
std::optional<double> option_value(const OptionField& field, const void* options);
// A flag, integer, number or choice has a value that it can have; else an error: "NAME is VALUE" and its source (empty:
// not told). `given` is how the value was written.
void check_value(const OptionField& field, double value, std::string_view name, std::string_view given,
                 std::string_view source);
// A field that is given has a value that it can have; one that is required is given. `name` is the parameter's.
void check_option(const OptionField& field, const void* options, const char* name);

// The struct that a program gave, of whose version it may be older and so shorter, or newer: fields that this version
// does not know must be unset or 0. `result` is a whole struct with every field unset.
void read_options(const OptionTable& table, const void* given, const char* name, void* result);
// The same without a result.
void check_options(const OptionTable& table, const void* given, const char* name);

}  // namespace accel
