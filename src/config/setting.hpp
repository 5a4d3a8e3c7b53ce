// SPDX-License-Identifier: Apache-2.0
// Setting: a value with its source (call, environment, file or default), for explanations; see config/precedence.hpp.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

namespace accel {

template <typename T>
struct Setting {
  T value{};
  std::string source = "default";  // "call", the variable's name, "job.yaml:3", or "default"

  Setting() = default;
  Setting(T initial) : value(std::move(initial)) {}  // NOLINT(google-explicit-constructor): a default is a value

  // Set by a call.
  template <typename Given, std::enable_if_t<std::is_assignable_v<T&, Given&&>, int> = 0>
  Setting& operator=(Given&& given) {
    return set(std::forward<Given>(given), "call");
  }
  template <typename Given>
  Setting& set(Given&& given, std::string from) {
    value = std::forward<Given>(given);
    source = std::move(from);
    return *this;
  }
  bool is_default() const { return source == "default"; }

  operator const T&() const { return value; }  // NOLINT(google-explicit-constructor): a setting is its value
  // For one without a default that was determined later.
  template <typename Optional = T>
  auto operator*() const -> decltype(*std::declval<const Optional&>()) {
    return *value;
  }
  template <typename Otherwise, typename Optional = T>
  auto value_or(Otherwise&& otherwise) const
      -> decltype(std::declval<const Optional&>().value_or(std::forward<Otherwise>(otherwise))) {
    return value.value_or(std::forward<Otherwise>(otherwise));
  }
};

}  // namespace accel
