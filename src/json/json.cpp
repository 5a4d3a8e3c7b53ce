// SPDX-License-Identifier: Apache-2.0
#include "json/json.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/number_text.hpp"

namespace accel {
namespace {

// Up to here doubles hold every integer, 2^53.
constexpr double kLargestExactInteger = 9007199254740992.0;

template <typename Number>
std::optional<Number> read_number(const std::string& digits) {
  Number number{};
  return parse_whole(digits, number) ? std::optional<Number>(number) : std::nullopt;
}

[[noreturn]] void wrong_type(const char* key, const Json& value, const char* expected) {
  fail(Status::kTypeMismatch, "JSON member '", key, "' is ", print_json(value), "; expected ", expected);
}

}  // namespace

Json Json::number(int64_t number) { return number_of(text_of_number(number)); }

Json Json::number(double number) {
  std::string digits = text_of_number(number);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return number_of(std::move(digits));
}

const std::string* Json::digits() const {
  const Number* const number = std::get_if<Number>(&value_);
  return number == nullptr ? nullptr : &number->digits;
}

std::optional<int64_t> Json::integer() const {
  return digits() == nullptr ? std::nullopt : read_number<int64_t>(*digits());
}

std::optional<double> Json::number() const {
  return digits() == nullptr ? std::nullopt : read_number<double>(*digits());
}

const Json* json_member(const Json& object, std::string_view key) {
  const Json::Members* const members = object.members();
  if (members == nullptr) return nullptr;
  const auto found =
      std::find_if(members->begin(), members->end(), [&](const auto& member) { return member.first == key; });
  return found == members->end() || found->second.is_null() ? nullptr : &found->second;
}

int64_t json_integer(const Json& object, const char* key, int64_t otherwise) {
  const Json* const value = json_member(object, key);
  if (value == nullptr) return otherwise;
  if (const auto integer = value->integer()) return *integer;
  const auto number = value->number();  // 1e3 and 2.0 are whole as well
  if (!number || std::floor(*number) != *number || std::fabs(*number) > kLargestExactInteger)
    wrong_type(key, *value, "an integer");
  return static_cast<int64_t>(*number);
}

double json_number(const Json& object, const char* key, double otherwise) {
  const Json* const value = json_member(object, key);
  if (value == nullptr) return otherwise;
  const auto number = value->number();
  if (!number) wrong_type(key, *value, "a number");
  return *number;
}

bool json_flag(const Json& object, const char* key, bool otherwise) {
  const Json* const value = json_member(object, key);
  if (value == nullptr) return otherwise;
  if (value->flag() == nullptr) wrong_type(key, *value, "true or false");
  return *value->flag();
}

std::string json_text(const Json& object, const char* key, const std::string& otherwise) {
  const Json* const value = json_member(object, key);
  if (value == nullptr) return otherwise;
  if (value->text() == nullptr) wrong_type(key, *value, "a string");
  return *value->text();
}

}  // namespace accel
