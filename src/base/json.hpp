// JSON documents as values. Nothing of a document is lost: members keep their order, also with equal keys, and numbers
// all their digits. Lack of memory is std::bad_alloc, as everywhere. cJSON reads and prints: see
// [Note: JSON through cJSON].
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
  // A finite one. A double has a point or an exponent, so that it is told from an integer.
  static Json number(int64_t number);
  static Json number(double number);
  // As it stands in a document.
  static Json number_of(std::string digits) { return Json(Number{std::move(digits)}); }

  // Null for what is of another kind.
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* flag() const { return std::get_if<bool>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const Items* items() const { return std::get_if<Items>(&value_); }
  const Members* members() const { return std::get_if<Members>(&value_); }
  const std::string* digits() const;  // of a number

  // Of a number without fraction and exponent that 64 bits hold.
  std::optional<int64_t> integer() const;
  // Of any number that is not too large.
  std::optional<double> number() const;

 private:
  struct Number {
    std::string digits;
  };
  explicit Json(Number number) : value_(std::move(number)) {}

  std::variant<std::monostate, bool, Number, std::string, Items, Members> value_;
};

// Lists and objects in each other; more is an error, so that no document exhausts the stack.
inline constexpr int kDeepestJson = 1000;

// `source` says in errors, which are kInvalidArgument, what was parsed ("config.json").
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
