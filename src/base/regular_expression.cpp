// SPDX-License-Identifier: Apache-2.0
#include "base/regular_expression.hpp"

#include <regex>

#include "base/error.hpp"

namespace accel {

struct RegularExpression::Compiled {
  std::regex regex;
};

RegularExpression::RegularExpression(const std::string& expression, const std::string& described, const char* names) try
    : compiled_(std::make_shared<const Compiled>(Compiled{std::regex(expression)})) {
} catch (const std::regex_error& error) {
  fail(Status::kInvalidArgument, described, ", which is not a regular expression (", error.what(),
       "); expected one for ", names);
}

bool RegularExpression::matches(const std::string& whole) const { return std::regex_match(whole, compiled_->regex); }
bool RegularExpression::is_found_in(const std::string& text) const { return std::regex_search(text, compiled_->regex); }

}  // namespace accel
