#include "kernels/thread_count.hpp"

#include <ATen/Parallel.h>

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

}  // namespace accel::kernels
