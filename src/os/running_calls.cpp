// SPDX-License-Identifier: Apache-2.0
#include "os/running_calls.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "os/file_descriptor.hpp"
#include "os/list_folder.hpp"
#include "os/process_use.hpp"

namespace accel {
namespace {

// A call may wait for other ranks until its deadline, and does no harm meanwhile. One that computes does, however long
// a busy machine makes it take.
constexpr std::chrono::seconds kPatience(1), kPatienceWhileTheyCompute(10);

// Several, so that threads do not share one cache line.
struct alignas(64) Counter {
  std::atomic<int64_t> running{0};
  std::atomic<uint64_t> begun{0};  // about: threads that share it may count at the same time
};
std::array<Counter, 16> counters;
std::atomic<uint32_t> next_counter{0};
thread_local Counter* counter_of_thread = nullptr;
thread_local bool is_counted = false;

std::atomic<bool> exiting{false};
pthread_t exiting_thread;  // written before `exiting`

constexpr const char* kThreads = "/proc/self/task";

// 'R' computes or wants to, 'D' waits for a disk; zero if the thread has ended. The name in front may have parentheses.
char thread_state(const std::string& thread) {
  char line[512];
  const FileDescriptor file(open((kThreads + ("/" + thread) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t size = read(file.number(), line, sizeof line);
  const std::string_view text(line, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t name_end = text.rfind(") ");
  return name_end == std::string_view::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

bool other_threads_compute() try {
  const std::string own = std::to_string(syscall(SYS_gettid));
  for (const std::string& thread : list_folder(kThreads)) {
    const char state = thread == own ? 'S' : thread_state(thread);
    if (state == 'R' || state == 'D') return true;
  }
  return false;
} catch (const std::exception&) {  // no memory
  return false;
}

void wait_for_others() {
  if (exiting.load() || is_forked_off()) return;  // in a child, the threads that are counted are the parent's
  exiting_thread = pthread_self();
  exiting.store(true);
  const auto begin = std::chrono::steady_clock::now();
  const auto is_patient = [begin] {
    const auto waited = std::chrono::steady_clock::now() - begin;
    return waited < kPatience || (waited < kPatienceWhileTheyCompute && other_threads_compute());
  };
  while (calls_of_others() > 0 && is_patient()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

int64_t calls_of_others() {
  int64_t calls = is_counted ? -1 : 0;  // this may be inside of a callback
  for (const Counter& counter : counters) calls += counter.running.load(std::memory_order_acquire);
  return calls;
}

std::atomic<int64_t>* RunningCall::enter() {
  if (is_counted) return nullptr;
  if (std::atomic<int64_t>* const running = try_enter()) return running;
  for (;;) pause();
}

std::atomic<int64_t>* RunningCall::try_enter() {
  if (counter_of_thread == nullptr)
    counter_of_thread = &counters[next_counter.fetch_add(1, std::memory_order_relaxed) % counters.size()];
  Counter& counter = *counter_of_thread;
  const uint64_t begun = counter.begun.load(std::memory_order_relaxed) + 1;
  counter.begun.store(begun, std::memory_order_relaxed);
  if ((begun & (begun - 1)) == 0) std::atexit(wait_for_others);  // without memory for it, an earlier one will do
  // In one order with the handler's flag: either it sees this call, or this call sees the flag.
  counter.running.fetch_add(1);
  if (!exiting.load() || pthread_equal(exiting_thread, pthread_self()) != 0) {
    is_counted = true;
    return &counter.running;
  }
  counter.running.fetch_sub(1);
  return nullptr;
}

void RunningCall::leave(std::atomic<int64_t>* running) {
  is_counted = false;
  running->fetch_sub(1, std::memory_order_release);
}

BackgroundWork::BackgroundWork() : running_(RunningCall::try_enter()) {
  require(running_ != nullptr, Status::kCancelled,
          "the process is ending and reads no more batches or weights; end the loop before exit()");
}

}  // namespace accel
