// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/fiber.hpp"

#include <sys/mman.h>

#include <csignal>
#include <cstdint>
#include <new>
#include <utility>

#include "comm/ucx/host/page_size.hpp"

// The sanitizers follow stacks, and must be notified of each change.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace accel::comm::ucx {

void Fiber::Unmap::operator()(char* stack) const { munmap(stack, kStackBytes); }

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  stack_.reset(static_cast<char*>(stack));
  if (mprotect(stack, kPage, PROT_NONE) != 0 || getcontext(&own_) != 0) throw std::bad_alloc();
  own_.uc_stack.ss_sp = stack;
  own_.uc_stack.ss_size = kStackBytes;
  // A signal of the program must not find this small stack, whichever thread it is on. Faults are still reported.
  sigfillset(&own_.uc_sigmask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&own_.uc_sigmask, fault);
  const auto address = reinterpret_cast<uintptr_t>(this);  // makecontext() passes on numbers of 32 bits
  makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(address),
              static_cast<unsigned>(address >> 32));
#if defined(__SANITIZE_THREAD__)
  own_handle_ = __tsan_create_fiber(0);
#endif
}

// NOLINTNEXTLINE(modernize-use-equals-default): not for the thread sanitizer
Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_handle_);
#endif
}

void Fiber::enter(unsigned low, unsigned high) {
  reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low)->run();
}

void Fiber::run() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &resumer_stack_, &resumer_stack_bytes_);
#endif
  while (true) {
    body_();
    ended_ = true;
    suspend();
  }
}

void Fiber::resume() {
  ended_ = false;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&resumer_handle_, own_.uc_stack.ss_sp, own_.uc_stack.ss_size);
#elif defined(__SANITIZE_THREAD__)
  resumer_handle_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_handle_, 0);
#endif
  swapcontext(&resumer_, &own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(resumer_handle_, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&own_handle_, resumer_stack_, resumer_stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(resumer_handle_, 0);
#endif
  swapcontext(&own_, &resumer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_handle_, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

}  // namespace accel::comm::ucx
