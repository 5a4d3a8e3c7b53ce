// SPDX-License-Identifier: Apache-2.0
// JSON documents as values, without loss: members keep their order and duplicate keys, and numbers all their digits.
// Lack of memory is std::bad_alloc. cJSON parses: see [Note: JSON through cJSON].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace accel {

class Json {
 public:
  using Items = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  Json() = default;                                                                // null
  template <typename Flag, std::enable_if_t<std::is_same_v<Flag, bool>, int> = 0>  // no pointer is one
  explicit Json(Flag flag) : value_(flag) {}
  explicit Json(std::string text) : value_(std::move(text)) {}
  explicit Json(const char* text) : value_(std::string(text)) {}
  explicit Json(Items items) : value_(std::move(items)) {}
  explicit Json(Members members) : value_(std::move(members)) {}
  // Finite. A double has a point or an exponent, which distinguishes it from an integer.
  static Json number(int64_t number);
  static Json number(double number);
  // The digits stay as they are in the document.
  static Json number_of(std::string digits) { return Json(Number{std::move(digits)}); }

  // Null if the value is of another kind.
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* flag() const { return std::get_if<bool>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const Items* items() const { return std::get_if<Items>(&value_); }
  const Members* members() const { return std::get_if<Members>(&value_); }
  const std::string* digits() const;  // of a number

  // For a number without fraction and exponent that fits 64 bits.
  std::optional<int64_t> integer() const;
  // For any number in range.
  std::optional<double> number() const;

 private:
  struct Number {
    std::string digits;
  };
  explicit Json(Number number) : value_(std::move(number)) {}

  std::variant<std::monostate, bool, Number, std::string, Items, Members> value_;
};

// Nested lists and objects; deeper documents are errors, because they would exhaust the stack.
inline constexpr int kDeepestJson = 1000;

// `source` ("config.json") names the document in errors, which are kInvalidArgument.
Json parse_json(std::string_view document, const std::string& source);

// One line, no spaces.
std::string print_json(const Json& value);

// Members of an object, with a default where they are missing or null; a wrong type is an error that names the key.
const Json* json_member(const Json& object, std::string_view key);
int64_t json_integer(const Json& object, const char* key, int64_t otherwise);
double json_number(const Json& object, const char* key, double otherwise);
bool json_flag(const Json& object, const char* key, bool otherwise);
std::string json_text(const Json& object, const char* key, const std::string& otherwise);

}  // namespace accel
