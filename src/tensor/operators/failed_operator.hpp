// SPDX-License-Identifier: Apache-2.0
// Failed operator: which operator of LibTorch an exception has come from.
#pragma once

#include <ATen/record_function.h>

#include <mutex>
#include <string>

namespace accel::tensor {

// Watches the operators that all threads call while it lives, because backwards run on threads of autograd.
class FailedOperator {
 public:
  FailedOperator();
  ~FailedOperator();
  FailedOperator(const FailedOperator&) = delete;
  FailedOperator& operator=(const FailedOperator&) = delete;

  // "aten::item"; of several the first one that failed, and of nested ones the innermost. Empty: none has.
  std::string name() const;
  // For the callback of LibTorch.
  void note(const char* name);

 private:
  const at::CallbackHandle callback_;
  mutable std::mutex mutex_;
  std::string name_;
};

}  // namespace accel::tensor
