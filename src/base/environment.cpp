#include "base/environment.hpp"

#include <strings.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"

namespace accel {
namespace {

// Several threads may want the same variable at once: the last one takes it back.
struct EnvironmentDefaults {
  std::mutex mutex;
  std::map<std::string, int, std::less<>> holders;  // found by a name that needs no memory
};

EnvironmentDefaults& environment_defaults() {
  static EnvironmentDefaults* const instance = std::make_unique<EnvironmentDefaults>().release();
  return *instance;
}

}  // namespace

std::optional<std::string> environment_text(const char* name) {
  // Another thread may just hold a default, and move the environment for it.
  const std::lock_guard<std::mutex> lock(environment_defaults().mutex);
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

EnvironmentDefault::EnvironmentDefault(const char* name, const char* value) : name_(nullptr) {
  EnvironmentDefaults& defaults = environment_defaults();
  const std::lock_guard<std::mutex> lock(defaults.mutex);
  const auto [holder, is_first] = defaults.holders.try_emplace(name, 0);
  if (is_first && (std::getenv(name) != nullptr || setenv(name, value, /*overwrite=*/0) != 0)) {
    defaults.holders.erase(holder);
    return;
  }
  holder->second++;
  name_ = name;
}

EnvironmentDefault::~EnvironmentDefault() {
  if (name_ == nullptr) return;
  EnvironmentDefaults& defaults = environment_defaults();
  const std::lock_guard<std::mutex> lock(defaults.mutex);
  const auto holder = defaults.holders.find(name_);
  if (--holder->second > 0) return;
  defaults.holders.erase(holder);
  unsetenv(name_);
}

}  // namespace accel
