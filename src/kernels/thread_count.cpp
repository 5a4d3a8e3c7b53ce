// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_count.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>

namespace accel::kernels {
namespace {

std::atomic<int> chosen{0};      // 0: by nobody
thread_local int followed = -1;  // the choice that holds on this thread; -1: it is new

}  // namespace

void set_num_threads(int64_t threads) {
  followed = static_cast<int>(threads);
  chosen.store(followed, std::memory_order_relaxed);
  at::set_num_threads(followed);
}

void follow_num_threads() {
  const int now = chosen.load(std::memory_order_relaxed);
  if (followed == now) return;
  followed = now;
  if (now > 0)
    at::set_num_threads(now);
  else
    at::get_num_threads();  // sets OpenMP's to LibTorch's own choice
}

// OpenMP's library is one of LibTorch's own, or the compiler's: found among what LibTorch has loaded.
void end_idle_threads() {
  constexpr int kSoftPause = 1;
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return;
  const auto pause = reinterpret_cast<int (*)(int)>(dlsym(torch, "omp_pause_resource_all"));
  if (pause != nullptr) pause(kSoftPause);
  dlclose(torch);
}

}  // namespace accel::kernels
