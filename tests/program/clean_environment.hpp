// SPDX-License-Identifier: Apache-2.0
// An environment of the test's own, as long as it lives.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace accel::tests {

class CleanEnvironment {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  explicit CleanEnvironment(const Variables& variables = {}) {
    for (char** one = environ; *one != nullptr; ++one) before_.emplace_back(*one);
    clearenv();
    for (const auto& [name, value] : variables) set(name, value);
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;
  ~CleanEnvironment() {
    clearenv();
    for (const std::string& one : before_) {
      const size_t equals = one.find('=');
      set(one.substr(0, equals), one.substr(equals + 1));
    }
  }
  static void set(const std::string& name, const std::string& value) { setenv(name.c_str(), value.c_str(), 1); }

 private:
  std::vector<std::string> before_;
};

}  // namespace accel::tests
