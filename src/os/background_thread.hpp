// SPDX-License-Identifier: Apache-2.0
// Background threads of the library.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace accel {

// Threads inherit the signal mask: the application's signals are delivered to its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// `name` has at most 15 characters. kOutOfMemory if the system has no thread.
template <typename Body>
std::thread background_thread(const char* name, Body body) {
  const SignalsBlocked blocked;
  try {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    fail(Status::kOutOfMemory, "cannot start the thread ", name, ": ", error.code().message(),
         "; see how many threads and how much memory the process may have");
  }
}

}  // namespace accel
