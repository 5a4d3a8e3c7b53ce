// SPDX-License-Identifier: Apache-2.0
// Explains each setting that a launch here would use, where it comes from and what it wins over: `accel config
// explain`.
#pragma once

#include <string>

#include "json/json.hpp"

namespace accel::launch {

// {"file": the configuration or null, "settings": [{"name", "value", "source", "overruled": [{"value", "source"}]}],
// "notes": [...], "problem": why nothing would start, or null}. `path`: the configuration; empty: the one that a launch
// would read. Secrets are "(hidden)".
Json explain_launch(const std::string& path);

// One line for each setting.
std::string describe_explanation(const Json& explanation);

}  // namespace accel::launch
