#include "base/environment.hpp"

#include <cerrno>
#include <cstdlib>
#include <strings.h>

#include "base/error.hpp"

namespace accel {

std::optional<std::string> environment_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<bool> environment_flag(const char* name) {
  const auto value = environment_text(name);
  if (!value) return std::nullopt;
  for (const char* word : {"1", "y", "yes", "t", "true", "on"})
    if (strcasecmp(value->c_str(), word) == 0) return true;
  for (const char* word : {"0", "n", "no", "f", "false", "off"})
    if (strcasecmp(value->c_str(), word) == 0) return false;
  fail(Status::kInvalidArgument, "environment variable ", name, " is '", *value,
       "'; expected yes, true, on, 1 or no, false, off, 0");
}

std::optional<int64_t> environment_integer(const char* name) {
  const auto value = environment_text(name);
  if (!value) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value->c_str(), &end, 10);
  require(errno == 0 && end != value->c_str() && *end == '\0', Status::kInvalidArgument, "environment variable ", name,
          " is '", *value, "'; expected an integer");
  return number;
}

std::optional<int64_t> environment_integer(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = environment_integer(name)) return value;
  return std::nullopt;
}

}  // namespace accel
