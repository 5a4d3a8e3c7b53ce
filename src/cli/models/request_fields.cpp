// SPDX-License-Identifier: Apache-2.0
#include "cli/models/request_fields.hpp"

#include <utility>

#include "base/error.hpp"
#include "cli/models/api_error.hpp"

namespace accel::program {
namespace {

constexpr size_t kMostShownLetters = 60;

Json parsed_body(std::string_view body) {
  try {
    Json json = parse_json(body, "the body");
    if (json.members() != nullptr) return json;
  } catch (const Error& error) {
    throw ApiError(400, error.message());
  }
  throw ApiError(400, "the body is not a JSON object; expected one");
}

}  // namespace

std::string shown_json(const Json& value) {
  std::string shown = print_json(value);
  if (shown.size() <= kMostShownLetters) return shown;
  size_t end = kMostShownLetters;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // not inside of a letter
  return shown.substr(0, end) + "...";
}

RequestFields::RequestFields(std::string_view body) : object_(parsed_body(body)) {}

std::optional<std::string> RequestFields::text(const char* name) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->text() == nullptr) refuse(name, "a string");
  return *value->text();
}

std::optional<int64_t> RequestFields::integer(const char* name, const NumberRange& range) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> integer = value->integer();
  if (!integer || static_cast<double>(*integer) < range.least || static_cast<double>(*integer) > range.greatest)
    refuse(name, range.words);
  return integer;
}

std::optional<double> RequestFields::number(const char* name, const NumberRange& range) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = value->digits() == nullptr ? std::nullopt : value->number();
  if (!number || *number < range.least || *number > range.greatest) refuse(name, range.words);
  return number;
}

bool RequestFields::flag(const char* name, bool otherwise) const {
  const Json* const value = find(name);
  if (value == nullptr) return otherwise;
  if (value->flag() == nullptr) refuse(name, "true or false");
  return *value->flag();
}

std::optional<RequestFields> RequestFields::object(const char* name) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->members() == nullptr) refuse(name, "an object");
  return RequestFields(*value, prefix_ + name + ".");
}

void RequestFields::refuse(const char* name, const std::string& expected) const {
  const Json* const value = find(name);
  const std::string path = prefix_ + name;
  throw ApiError(
      400, accel::text(path, value == nullptr ? " is missing" : " is " + shown_json(*value), "; expected ", expected),
      path);
}

void RequestFields::refuse_unsupported(const char* name, const std::string& expected) const {
  const std::string path = prefix_ + name;
  throw ApiError(
      400, accel::text(path, " is ", shown_json(*find(name)), ", which this server does not have; expected ", expected),
      path, "unsupported_value");
}

}  // namespace accel::program
