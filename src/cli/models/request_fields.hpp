// SPDX-License-Identifier: Apache-2.0
// Fields of a request's JSON. A field that is missing or null has its default; a wrong type or a number out of range is
// an ApiError 400 that names the field, what it is, and what was expected. Fields that nobody asks for are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "json/json.hpp"

namespace accel::program {

struct NumberRange {
  double least, greatest;
  const char* words;  // "a number from 0 to 2"
};

class RequestFields {
 public:
  // ApiError 400 for what is no JSON object.
  explicit RequestFields(std::string_view body);
  explicit RequestFields(Json object, std::string prefix) : object_(std::move(object)), prefix_(std::move(prefix)) {}

  const Json* find(const char* name) const { return json_member(object_, name); }
  std::optional<std::string> text(const char* name) const;
  std::optional<int64_t> integer(const char* name, const NumberRange& range) const;
  std::optional<double> number(const char* name, const NumberRange& range) const;
  bool flag(const char* name, bool otherwise) const;
  std::optional<RequestFields> object(const char* name) const;

  [[noreturn]] void refuse(const char* name, const std::string& expected) const;
  // The field has a value that would change the answer, and that this server cannot give.
  [[noreturn]] void refuse_unsupported(const char* name, const std::string& expected) const;

 private:
  Json object_;
  std::string prefix_;  // "stream_options."
};

// A value for an error: long ones are cut.
std::string shown_json(const Json& value);

}  // namespace accel::program
