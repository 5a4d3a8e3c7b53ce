// SPDX-License-Identifier: Apache-2.0
// Early stop: how a forward that is computed again ends as soon as it has saved what the backward needs.
#pragma once

namespace accel::nn {

// Thrown through that forward. No std::exception, so that nothing between takes it for an error.
struct EarlyStop {
  const void* forward;  // which one
};

// Around code that exceptions must not cross, such as the application's: no forward stops inside of it.
class NoEarlyStop {
 public:
  NoEarlyStop() { depth_of_thread++; }
  ~NoEarlyStop() { depth_of_thread--; }
  NoEarlyStop(const NoEarlyStop&) = delete;
  NoEarlyStop& operator=(const NoEarlyStop&) = delete;

  // How many of them this thread is in.
  static int depth() { return depth_of_thread; }

 private:
  inline static thread_local int depth_of_thread = 0;
};

}  // namespace accel::nn
