// SPDX-License-Identifier: Apache-2.0
// Describes this machine for a bug report: hardware, limits, libraries, interpreters, configuration, variables.
#pragma once

#include <string>

#include "json/json.hpp"

namespace accel::launch {

// One object of texts, numbers, lists and objects; what is not there is missing. Other programs are asked, each for a
// few seconds at most. `configuration`: a file instead of that of `accel config`; empty: that one, if it is there.
// Secrets are masked.
Json environment_report(const std::string& configuration = "");
std::string environment_report_json();

// "***" for the value of a variable whose name says that it is a secret.
std::string masked_value(const std::string& name, const std::string& value);

}  // namespace accel::launch
