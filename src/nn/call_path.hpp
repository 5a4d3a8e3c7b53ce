// SPDX-License-Identifier: Apache-2.0
// Call path: the modules whose calls are under way on this thread, so that an error can name the innermost one.
#pragma once

#include <string>

namespace accel::nn {

class Module;

// Marks the call of a module during its lifetime.
class OpenCall {
 public:
  explicit OpenCall(const Module& module) : module_(module), outer_(innermost) { innermost = this; }
  ~OpenCall() { innermost = outer_; }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

 private:
  friend std::string in_called_module();

  static inline thread_local const OpenCall* innermost = nullptr;
  const Module& module_;
  const OpenCall* const outer_;
};

// "in 'transformer.h.0.attn': ", to begin a message with: the innermost module, by its path in the outermost one that
// has it, or "in a module of kind 'SelfAttention': ", if it has no other around it. Empty outside of calls.
std::string in_called_module();

}  // namespace accel::nn
