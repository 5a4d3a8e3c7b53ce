// SPDX-License-Identifier: Apache-2.0
// Environment variables, parsed by Accelerate's rules, with errors that name the variable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel {

// The value, or nothing if the variable is unset or empty.
std::optional<std::string> environment_text(const char* name);

// y, yes, t, true, on, 1 and n, no, f, false, off, 0 in any case; nothing for anything else.
std::optional<bool> parse_flag(const std::string& text);
// Nothing unless it is a 64-bit integer.
std::optional<int64_t> parse_integer(const std::string& text);

// Anything else is an error.
std::optional<bool> environment_flag(const char* name);

std::optional<int64_t> environment_integer(const char* name);

// The first of several variables that is set: launchers have different names for the same value.
std::optional<int64_t> environment_integer(std::initializer_list<const char*> names);

// Sets variables temporarily, except those that the user has set, for libraries that have no other configuration. Other
// threads may read the environment meanwhile, see [Note: variables beside readers].
class EnvironmentDefaults {
 public:
  using Variable = std::pair<const char*, const char*>;  // name and value, for as long as the process lives

  explicit EnvironmentDefaults(const std::vector<Variable>& variables);
  EnvironmentDefaults(const EnvironmentDefaults&) = delete;
  EnvironmentDefaults& operator=(const EnvironmentDefaults&) = delete;
  ~EnvironmentDefaults();
};

// Gives the process another environment, of entries "NAME=value". Only for one that was just forked off and has one
// thread.
void replace_environment(const std::vector<std::string>& entries);

}  // namespace accel
