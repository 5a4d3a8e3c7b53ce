// SPDX-License-Identifier: Apache-2.0
// A regular expression of ECMAScript. One source compiles the templates of std::regex, which take seconds, for all
// users.
#pragma once

#include <memory>
#include <string>

namespace accel {

class RegularExpression {
 public:
  // kInvalidArgument unless it is one; `described` says where it comes from, "modules is '...'", and `names` what it is
  // for.
  RegularExpression(const std::string& expression, const std::string& described, const char* names);

  bool matches(const std::string& whole) const;
  bool is_found_in(const std::string& text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace accel
