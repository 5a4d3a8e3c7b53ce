// Environment variables, read with the reference's rules and with errors that name the variable.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace accel {

// The value, or nothing when the variable is unset or empty.
std::optional<std::string> environment_text(const char* name);

// y, yes, t, true, on, 1 and n, no, f, false, off, 0 in any case; anything else is an error.
std::optional<bool> environment_flag(const char* name);

std::optional<int64_t> environment_integer(const char* name);

// The first of several names that is set: launchers differ in how they call the same thing.
std::optional<int64_t> environment_integer(std::initializer_list<const char*> names);

// Gives a variable a value for a while, unless the user has set it: libraries below that can only be told so. Not for
// use beside threads that read the environment.
class EnvironmentDefault {
 public:
  EnvironmentDefault(const char* name, const char* value);
  EnvironmentDefault(EnvironmentDefault&& other) noexcept : name_(other.name_) { other.name_ = nullptr; }
  EnvironmentDefault(const EnvironmentDefault&) = delete;
  EnvironmentDefault& operator=(const EnvironmentDefault&) = delete;
  ~EnvironmentDefault();

 private:
  const char* name_;  // null when there is nothing to take back
};

}  // namespace accel
