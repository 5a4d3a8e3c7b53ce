#include "capi/running_calls.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/current_call.hpp"
#include "capi/process_check.hpp"

namespace accel::capi {
namespace {

constexpr std::chrono::seconds kPatience(1);

// Several, so that threads do not share one cache line.
struct alignas(64) Counter {
  std::atomic<int64_t> running{0};
  std::atomic<uint64_t> begun{0};  // about: threads that share it may count at the same time
};
std::array<Counter, 16> counters;
std::atomic<uint32_t> next_counter{0};
thread_local Counter* counter_of_thread = nullptr;

std::atomic<bool> exiting{false};
pthread_t exiting_thread;  // written before `exiting`

void wait_for_others() {
  if (exiting.load() || is_forked_off()) return;  // in a child, the threads that are counted are the parent's
  exiting_thread = pthread_self();
  exiting.store(true);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (calls_of_others() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

int64_t calls_of_others() {
  int64_t calls = CurrentCall::function() == nullptr ? 0 : -1;  // this may be inside of a callback
  for (const Counter& counter : counters) calls += counter.running.load(std::memory_order_acquire);
  return calls;
}

std::atomic<int64_t>* RunningCall::enter() {
  if (CurrentCall::function() != nullptr) return nullptr;
  if (counter_of_thread == nullptr)
    counter_of_thread = &counters[next_counter.fetch_add(1, std::memory_order_relaxed) % counters.size()];
  Counter& counter = *counter_of_thread;
  const uint64_t begun = counter.begun.load(std::memory_order_relaxed) + 1;
  counter.begun.store(begun, std::memory_order_relaxed);
  if ((begun & (begun - 1)) == 0) std::atexit(wait_for_others);  // without memory for it, an earlier one will do
  // In one order with the handler's flag: either it sees this call, or this call sees the flag.
  counter.running.fetch_add(1);
  if (!exiting.load() || pthread_equal(exiting_thread, pthread_self()) != 0) return &counter.running;
  counter.running.fetch_sub(1);
  for (;;) pause();
}

}  // namespace accel::capi
