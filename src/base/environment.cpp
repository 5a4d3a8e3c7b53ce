// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

#include "base/error.hpp"

namespace accel {
namespace {

// [Note: variables beside readers] setenv() frees or moves the array that getenv() walks through on another thread,
// which then reads freed memory; localtime() and others call getenv(), too. So the whole array is replaced by one of
// our own, which has the user's entries and ours, and put back later. Neither is freed or written to: a reader sees the
// one or the other. Arrays are reused, so their number does not grow with the number of groups.
class ReplacedEnvironment {
 public:
  std::mutex& mutex() { return mutex_; }

  void hold(const std::vector<EnvironmentDefaults::Variable>& variables) {
    std::vector<char*> entries = current();
    std::vector<const char*> names = names_;
    for (const auto& [name, value] : variables) {
      if (std::getenv(name) != nullptr) continue;
      entries.push_back(entry(name, value));
      names.push_back(name);
    }
    if (names.size() > names_.size()) {
      const Array& array = array_of(entries);
      changed_by_program_ = is_changed_by_program();
      if (ours_ == nullptr) user_ = environ;
      ours_ = &array;
      names_ = std::move(names);
      __atomic_store_n(&environ, array.memory.get(), __ATOMIC_RELEASE);
    }
    holders_++;
  }

  // The last holder takes all back; what the program has set or removed meanwhile stays so.
  void let_go() noexcept {
    if (--holders_ > 0 || ours_ == nullptr) return;
    changed_by_program_ = is_changed_by_program();
    if (!changed_by_program_)
      __atomic_store_n(&environ, user_, __ATOMIC_RELEASE);
    else
      for (const char* const name : names_) unsetenv(name);
    changed_by_program_ = false;
    names_.clear();
    ours_ = nullptr;
  }

 private:
  struct Array {
    std::vector<char*> entries;
    std::unique_ptr<char*[]> memory;  // the entries and a null behind them

    bool is_unchanged() const {
      return std::equal(entries.begin(), entries.end(), memory.get()) && memory[entries.size()] == nullptr;
    }
  };

  static std::vector<char*> current() {
    std::vector<char*> entries;
    for (char** place = environ; place != nullptr && *place != nullptr; place++) entries.push_back(*place);
    return entries;
  }

  // Since a variable was first added.
  bool is_changed_by_program() const {
    if (changed_by_program_ || ours_ == nullptr) return changed_by_program_;
    return environ != ours_->memory.get() || !ours_->is_unchanged();
  }

  char* entry(const char* name, const char* value) {
    for (std::string& known : texts_)
      if (known == std::string(name) + "=" + value) return known.data();
    return texts_.emplace_back(std::string(name) + "=" + value).data();
  }

  const Array& array_of(const std::vector<char*>& entries) {
    for (Array& array : arrays_)
      if (array.entries == entries && array.is_unchanged()) return array;
    Array array{entries, std::make_unique<char*[]>(entries.size() + 1)};
    std::copy(entries.begin(), entries.end(), array.memory.get());
    return arrays_.emplace_back(std::move(array));
  }

  std::mutex mutex_;
  int holders_ = 0;
  char** user_ = nullptr;        // what was there before
  const Array* ours_ = nullptr;  // what was put there; null when nothing was
  bool changed_by_program_ = false;
  std::vector<const char*> names_;  // of the variables that were added
  std::deque<std::string> texts_;   // all entries that were ever made
  std::deque<Array> arrays_;        // and all arrays
};

ReplacedEnvironment& replaced_environment() {
  static ReplacedEnvironment* const instance = std::make_unique<ReplacedEnvironment>().release();
  return *instance;
}

}  // namespace

std::optional<std::string> environment_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<bool> parse_flag(const std::string& text) {
  for (const char* word : {"1", "y", "yes", "t", "true", "on"})
    if (strcasecmp(text.c_str(), word) == 0) return true;
  for (const char* word : {"0", "n", "no", "f", "false", "off"})
    if (strcasecmp(text.c_str(), word) == 0) return false;
  return std::nullopt;
}

std::optional<int64_t> parse_integer(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (errno != 0 || end == text.c_str() || *end != '\0') return std::nullopt;
  return number;
}

std::optional<bool> environment_flag(const char* name) {
  const auto value = environment_text(name);
  if (!value) return std::nullopt;
  const auto flag = parse_flag(*value);
  require(flag.has_value(), Status::kInvalidArgument, "environment variable ", name, " is '", *value,
          "'; expected yes, true, on, 1 or no, false, off, 0");
  return flag;
}

std::optional<int64_t> environment_integer(const char* name) {
  const auto value = environment_text(name);
  if (!value) return std::nullopt;
  const auto number = parse_integer(*value);
  require(number.has_value(), Status::kInvalidArgument, "environment variable ", name, " is '", *value,
          "'; expected an integer");
  return number;
}

std::optional<int64_t> environment_integer(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = environment_integer(name)) return value;
  return std::nullopt;
}

void replace_environment(const std::vector<std::string>& entries) {
  clearenv();
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos && equals > 0) setenv(entry.substr(0, equals).c_str(), &entry[equals + 1], 1);
  }
}

EnvironmentDefaults::EnvironmentDefaults(const std::vector<Variable>& variables) {
  ReplacedEnvironment& environment = replaced_environment();
  const std::lock_guard<std::mutex> lock(environment.mutex());
  environment.hold(variables);
}

EnvironmentDefaults::~EnvironmentDefaults() {
  ReplacedEnvironment& environment = replaced_environment();
  const std::lock_guard<std::mutex> lock(environment.mutex());
  environment.let_go();
}

}  // namespace accel
