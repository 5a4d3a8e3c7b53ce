// A resolved setting: explicit call > environment > default. It remembers where it came from, so that it can be
// explained.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace accel {

template <typename T>
struct Setting {
  T value{};
  std::string source;  // "call", the variable's name, or "default"

  operator const T&() const { return value; }  // NOLINT(google-explicit-constructor): a setting is its value
};

// `environment` is what the variable `variable` says, if anything.
template <typename T>
Setting<T> resolve(const std::optional<T>& given, const char* variable, const std::optional<T>& environment,
                   T otherwise) {
  if (given) return {*given, "call"};
  if (environment) return {*environment, variable};
  return {std::move(otherwise), "default"};
}

template <typename T>
Setting<T> resolve(const std::optional<T>& given, T otherwise) {
  if (given) return {*given, "call"};
  return {std::move(otherwise), "default"};
}

}  // namespace accel
