// SPDX-License-Identifier: Apache-2.0
// The function of the C API that this thread is in, for messages about the calls of several ranks.
#pragma once

#include <string_view>

namespace accel {

class CurrentCall {
 public:
  // `function` is a string literal.
  explicit CurrentCall(const char* function) : outer_(innermost_function) { innermost_function = function; }
  ~CurrentCall() { innermost_function = outer_; }
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

  // The innermost one, "accel_save_state"; null outside of all.
  static const char* function() { return innermost_function; }

 private:
  static inline thread_local const char* innermost_function = nullptr;
  const char* const outer_;
};

// "save_state"; `otherwise` for null.
inline std::string_view call_name(const char* function, std::string_view otherwise) {
  constexpr std::string_view kPrefix = "accel_";
  if (function == nullptr) return otherwise;
  std::string_view name = function;
  if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
  return name;
}

}  // namespace accel
